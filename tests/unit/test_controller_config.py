"""The config file: what is accepted, how it is written back, and that every error names field, value and rule."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from controller_fakes import CONFIG
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import config as configuration
from controller.config import ConfigError, dump, format_rate, parse, parse_rate, parse_text, save
from controller.desired import build


def faults(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_text(text)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("100M", 100_000_000),
        ("10G", 10_000_000_000),
        ("2.5G", 2_500_000_000),
        ("25gbit", 25_000_000_000),
        ("64K", 64_000),
        ("1T", 10**12),
        (1, 1),
        ("1500", 1500),
    ],
)
def test_rates(text: object, rate_bps: int) -> None:
    assert parse_rate(text) == rate_bps


@pytest.mark.parametrize("text", ["10X", "", "-1", 0, True, 1.5, "1.0001K", "M", None, 10**14])
def test_bad_rates(text: object) -> None:
    with pytest.raises(ValueError, match="rate is"):
        parse_rate(text)


@given(st.integers(1, 10**13))
def test_rates_survive_being_written(rate_bps: int) -> None:
    assert parse_rate(format_rate(rate_bps)) == rate_bps


def test_rate_spelling() -> None:
    assert format_rate(100_000_000) == "100M"
    assert format_rate(2_500_000_000) == "2500M"
    assert format_rate(123) == "123"


def test_the_contracts_example_is_accepted_and_survives_dump(tmp_path: Path) -> None:
    loaded = parse_text(CONFIG)
    port = loaded.switches["leaf1"].ports[1]
    assert port.rate == 100_000_000
    assert port.pfc == [3]
    assert port.pfc_quanta == 65535
    assert loaded.qos_of(port).queue_of(5) == 5
    assert loaded.qos_of(port).pg_of(3) == 3
    assert parse_text(dump(loaded)) == loaded
    path = tmp_path / "lab.yaml"
    save(loaded, path)
    assert configuration.load(path) == loaded
    assert [item.name for item in tmp_path.iterdir()] == ["lab.yaml"]


def test_profiles_in_place() -> None:
    text = CONFIG.replace("ets: lab", "ets: {2: {cbs: 10M}}").replace(
        "ecn: {3: storage}", "ecn: {3: {kmin_bytes: 1, kmax_bytes: 1}}"
    )
    loaded = parse_text(text.replace("buffers: {3: lossless}", "buffers: {3: {alpha: -2}}"))
    port = loaded.switches["leaf1"].ports[1]
    assert loaded.ecn_of(port)[3].pmax == 1.0
    assert loaded.buffers_of(port)[3].alpha == -2
    assert parse_text(dump(loaded)) == loaded


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "rate: 100M, peer: h1",
            "rate: 10X",
            'switches.leaf1.ports.1.rate: \'10X\': a rate is an integer of bit/s or a string such as "100M" or "10G"',
        ),
        ("peer: h1", "pear: h1", "switches.leaf1.ports.1.pear: 'h1': unknown key"),
        ("pfc: [3]", "pfc: [8]", "switches.leaf1.ports.1.pfc.0: 8: Input should be less than or equal to 7"),
        ("pfc: [3]", "pfc: [yes]", "switches.leaf1.ports.1.pfc.0: True: a number is wanted, not true or false"),
        (
            "{kmin_bytes: 20000,",
            "{kmin_bytes: 90000,",
            "ecn_profiles.storage: {'kmin_bytes': 90000, 'kmax_bytes': 80000, 'pmax': 0.1}: "
            "kmin_bytes 90000 must not be above kmax_bytes 80000",
        ),
        ("pmax: 0.1", "pmax: 1.5", "ecn_profiles.storage.pmax: 1.5: Input should be less than or equal to 1"),
        ("{ets: 40}", "{ets: 0}", "ets_profiles.lab.0.ets: 0: Input should be greater than or equal to 1"),
        ("6: strict", "6: fast", "ets_profiles.lab.6: 'fast': strict, {ets: 1..100} or {cbs: rate} is wanted"),
        (
            "xon: 40000, ",
            "",
            "buffer_profiles.lossless: {'reserved': 3000, 'xoff': 60000, 'headroom': 500000}: "
            "xon is wanted beside xoff",
        ),
        (
            "xoff: 60000",
            "xoff: 60000, alpha: 1",
            "buffer_profiles.lossless: "
            "{'reserved': 3000, 'xoff': 60000, 'alpha': 1, 'xon': 40000, 'headroom': 500000}: "
            "exactly one of xoff (static) and alpha (dynamic) is wanted",
        ),
        ("ets: lab", "ets: lib", "switches.leaf1.ports.1.ets: 'lib': not in ets_profiles (known: lab)"),
        ("peer: spine1", "qos: gold", "switches.leaf1.ports.2.qos: 'gold': not in qos_profiles (known: default)"),
        (
            "buffers: {3: lossless}",
            "buffers: {3: big}",
            "switches.leaf1.ports.1.buffers.3: 'big': not in buffer_profiles (known: lossless)",
        ),
        ("via: [{port: 1,", "via: [{port: 9,", "switches.leaf1.routes.0.via.0.port: 9: not a port of leaf1"),
        ("fd00:2::/32", "10.1.0.1/32", "switches.leaf1.routes.2.prefix: '10.1.0.1/32': listed twice on leaf1"),
        (
            "10.2.0.0/16",
            "10.2.0.1/16",
            "switches.leaf1.routes.1.prefix: '10.2.0.1/16': an IPv4 or IPv6 prefix without host bits is wanted "
            "(10.2.0.1/16 has host bits set)",
        ),
        (
            '"02:01:00:00:01:01", rate',
            '"03:01:00:00:01:01", rate',
            "switches.leaf1.ports.1.mac: '03:01:00:00:01:01': a unicast MAC address is wanted: "
            "the lowest bit of the first octet is 0",
        ),
        ("    device_id: 1\n", "", "switches.leaf1.device_id: missing: this key is required"),
        (
            "      2: {name",
            "      1: {name",
            "line 17, column 7: not YAML: key 1 is given twice",
        ),
    ],
)
def test_errors_name_field_value_and_rule(old: str, new: str, fault: str) -> None:
    assert old in CONFIG
    assert faults(CONFIG.replace(old, new)) == [fault]


def test_all_faults_are_reported_at_once() -> None:
    text = CONFIG.replace("rate: 100M, peer: h1", "rate: 10X").replace("{ets: 40}", "{ets: 400}")
    assert [fault.split(":")[0] for fault in faults(text)] == ["ets_profiles.lab.0.ets", "switches.leaf1.ports.1.rate"]


def test_acl_priorities_are_all_or_nothing() -> None:
    rules = "    acl: [{dscp: 1, drop: true, priority: 5}, {dscp: 2, drop: true}]\n"
    assert faults(CONFIG + rules) == [
        "switches.leaf1.acl.1.priority: None: either every rule of a list has one, or none has"
    ]
    rules = "    acl: [{dscp: 1, drop: true, priority: 5}, {dscp: 2, drop: true, priority: 5}]\n"
    assert faults(CONFIG + rules) == ["switches.leaf1.acl.1.priority: 5: already the priority of another rule"]
    rules = "    acl: [{dscp: 1, mirror: 4}]\n"
    assert faults(CONFIG + rules) == ["switches.leaf1.acl.0.mirror: 4: not in clone_sessions of leaf1"]


@pytest.mark.parametrize("text", ["", "[]", "just text", "{", "a: b: c", "\x00"])
def test_what_is_no_config_is_refused(text: str) -> None:
    assert len(faults(text)) == 1


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: .*No such file"):
        configuration.load(tmp_path / "none.yaml")


def test_parse_accepts_string_keys_as_json_has_them() -> None:
    data = {
        "qos_profiles": {"default": {}},
        "switches": {
            "s": {
                "device_id": 1,
                "address": "unix:/x",
                "ports": {"4": {"mac": "02-00-00-00-00-0A", "rate": 1000, "queue_limits": {"3": 5, "4": {"alpha": 1}}}},
            }
        },
    }
    port = parse(data).switches["s"].ports[4]
    assert port.mac == "02:00:00:00:00:0a"
    assert port.queue_limits[3] == 5


def test_warnings_name_pfc_without_headroom_or_class() -> None:
    text = CONFIG.replace("pfc: [3]", "pfc: [3, 4]").replace(", headroom: 500000", "")
    assert configuration.warnings(parse_text(text)) == [
        "switches.leaf1.ports.1.buffers.3: priority 3 has PFC but its group has no headroom",
        "switches.leaf1.ports.1.pfc: priority 4 is not lossless in QoS profile default",
    ]
    assert configuration.warnings(parse_text(CONFIG)) == []


PLAIN = yaml.safe_load(CONFIG)


def places(data: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Paths of every value in nested data."""
    found = [path] if path else []
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        found += places(value, (*path, key))
    return found


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=4)
junk = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(scalars, inner, max_size=3))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_stands_anywhere_is_accepted_or_refused_by_name(data: st.DataObject) -> None:
    config = copy.deepcopy(PLAIN)
    path = data.draw(st.sampled_from(places(config)))
    target = config
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = data.draw(junk)
    try:
        loaded = parse(config)
    except ConfigError as error:
        problems = error.problems
    else:
        problems = ["config: refused: was not"]
        for name in loaded.switches:
            build(loaded, name)
        assert parse_text(dump(loaded)) == loaded
    assert problems
    assert all(": " in problem for problem in problems)
