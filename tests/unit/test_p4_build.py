"""The committed build of the P4 program: made of these sources, and holding what docs/contract.md promises.

The tables below are written from the contract, not from the program.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from finsy.proto import p4i
from google.protobuf import text_format

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / "p4src" / "build"

# --- contract, section 2 and 3: table -> (size of a port-indexed table or None, keys, actions, annotation) ---------

EXACT, LPM, TERNARY, RANGE = "EXACT", "LPM", "TERNARY", "RANGE"

TABLES: dict[str, tuple[list[tuple[str, str, int]], list[str]]] = {
    "ingress.port_config": ([("ingress_port", EXACT, 9)], ["ingress.set_port"]),
    "ingress.arp_proxy": ([("ingress_port", EXACT, 9)], ["ingress.arp_reply"]),
    "ingress.pcp_to_priority": (
        [("qos_profile", EXACT, 8), ("pcp", EXACT, 3), ("dei", EXACT, 1)],
        ["ingress.set_priority"],
    ),
    "ingress.dscp_to_priority": ([("qos_profile", EXACT, 8), ("dscp", EXACT, 6)], ["ingress.set_priority"]),
    "ingress.app_priority": (
        [
            ("qos_profile", EXACT, 8),
            ("ether_type", TERNARY, 16),
            ("ip_proto", TERNARY, 8),
            ("l4_dst_port", TERNARY, 16),
        ],
        ["ingress.set_priority"],
    ),
    "ingress.priority_map": ([("qos_profile", EXACT, 8), ("priority", EXACT, 3)], ["ingress.set_class"]),
    "ingress.ipv4_lpm": ([("dst", LPM, 32)], ["ingress.route", "ingress.drop_route", "ingress.punt"]),
    "ingress.ipv6_lpm": ([("dst", LPM, 128)], ["ingress.route", "ingress.drop_route", "ingress.punt"]),
    "ingress.nexthop": ([("nexthop", EXACT, 16)], ["ingress.forward"]),
    "ingress.acl": (
        [
            ("in_port", TERNARY, 9),
            ("ether_type", TERNARY, 16),
            ("src_ip4", TERNARY, 32),
            ("dst_ip4", TERNARY, 32),
            ("ip_proto", TERNARY, 8),
            ("l4_dst_port", RANGE, 16),
            ("dscp", TERNARY, 6),
        ],
        ["ingress.acl_drop", "ingress.acl_punt", "ingress.acl_mirror", "ingress.acl_set_class"],
    ),
    "ingress.pfc_policy": ([("ingress_port", EXACT, 9)], ["ingress.set_pfc_policy"]),
    "egress.pfc_tx_dialect": ([("egress_port", EXACT, 9)], ["egress.set_pfc_dialect"]),
    "egress.port_mac": ([("egress_port", EXACT, 9)], ["egress.set_src_mac"]),
    "egress.ecn_profile": ([("egress_port", EXACT, 9), ("queue", EXACT, 3)], ["egress.set_ecn"]),
    "egress.pcp_rewrite": ([("egress_port", EXACT, 9), ("priority", EXACT, 3)], ["egress.set_pcp"]),
    "egress.dscp_rewrite": ([("egress_port", EXACT, 9), ("priority", EXACT, 3)], ["egress.set_dscp"]),
    "egress.tm_port": ([("port", EXACT, 9)], ["egress.tm_set_port"]),
    "egress.tm_pfc": ([("port", EXACT, 9)], ["egress.tm_set_pfc"]),
    "egress.tm_scheduler": (
        [("port", EXACT, 9), ("tc", EXACT, 3)],
        ["egress.tm_strict", "egress.tm_ets", "egress.tm_cbs"],
    ),
    "egress.tm_priority_group": (
        [("port", EXACT, 9), ("pg", EXACT, 3)],
        ["egress.tm_pg_static", "egress.tm_pg_dynamic"],
    ),
    "egress.tm_queue": (
        [("port", EXACT, 9), ("queue", EXACT, 3)],
        ["egress.tm_queue_static", "egress.tm_queue_dynamic"],
    ),
    "egress.tm_pool": ([("pool", EXACT, 8)], ["egress.tm_set_pool"]),
    "egress.tm_headroom_pool": ([("pool", EXACT, 8)], ["egress.tm_set_headroom_pool"]),
    "egress.tm_pg_pool": ([("port", EXACT, 9), ("pg", EXACT, 3)], ["egress.tm_set_pg_pool"]),
    "egress.tm_storm": (
        [("port", EXACT, 9), ("priority", EXACT, 3)],
        ["egress.tm_storm_drop", "egress.tm_storm_forward"],
    ),
    "egress.tm_watchdog": ([("port", EXACT, 9), ("priority", EXACT, 3)], ["egress.tm_set_watchdog"]),
    "egress.tm_qcn": ([("port", EXACT, 9), ("queue", EXACT, 3)], ["egress.tm_set_qcn"]),
}

ACTIONS: dict[str, list[tuple[str, int]]] = {
    "ingress.set_port": [
        ("trust", 2),
        ("default_priority", 3),
        ("qos_profile", 8),
        ("pfc_rx_enable", 8),
        ("pause_rx_enable", 1),
    ],
    "ingress.set_priority": [("priority", 3)],
    "ingress.arp_reply": [("mac", 48)],
    "ingress.set_class": [("queue", 3), ("pg", 3), ("lossless", 1)],
    "ingress.route": [("nexthop", 16)],
    "ingress.drop_route": [],
    "ingress.punt": [],
    "ingress.forward": [("port", 9), ("dst_mac", 48)],
    "ingress.acl_drop": [],
    "ingress.acl_punt": [],
    "ingress.acl_mirror": [("session", 16)],
    "ingress.acl_set_class": [("queue", 3), ("pg", 3), ("lossless", 1)],
    "egress.set_src_mac": [("mac", 48)],
    "egress.set_ecn": [("kmin_bytes", 32), ("kmax_bytes", 32), ("pmax", 32), ("slope", 48), ("drop_non_ect", 1)],
    "egress.set_pcp": [("pcp", 3), ("dei", 1)],
    "egress.set_dscp": [("dscp", 6)],
    "egress.tm_set_port": [("rate_bps", 64)],
    "egress.tm_set_pfc": [("tx_enable", 8), ("quanta", 16), ("queue_map", 24)],
    "egress.tm_strict": [],
    "egress.tm_ets": [("weight", 8)],
    "egress.tm_cbs": [("idle_slope_bps", 64)],
    "egress.tm_pg_static": [("reserved", 32), ("xoff", 32), ("xon", 32), ("headroom", 32), ("priorities", 8)],
    "egress.tm_pg_dynamic": [("reserved", 32), ("alpha", 8), ("xon_offset", 32), ("headroom", 32), ("priorities", 8)],
    "egress.tm_queue_static": [("limit", 32)],
    "egress.tm_queue_dynamic": [("alpha", 8)],
    "egress.tm_set_pool": [("size", 32)],
    "egress.tm_set_headroom_pool": [("size", 32)],
    "egress.tm_set_pg_pool": [("pool", 8), ("headroom_pool", 8)],
    "egress.tm_storm_drop": [],
    "egress.tm_storm_forward": [],
    "egress.tm_set_watchdog": [("detect_us", 32), ("restore_us", 32), ("action", 2), ("empty_queue", 1)],
    "egress.tm_set_qcn": [
        ("qeq", 32),
        ("weight", 8),
        ("sample", 32),
        ("jitter", 8),
        ("priority", 3),
        ("cpid", 64),
    ],
    "ingress.set_pfc_policy": [("dialect", 2), ("storm_action", 2)],
    "egress.set_pfc_dialect": [("dialect", 2)],
}

COUNTERS = {
    *("ingress.rx", "egress.tx", "egress.ce_marked", "egress.ecn_dropped", "ingress.pfc_rx_xoff"),
    *("ingress.pfc_rx_xon", "egress.pfc_tx_xoff", "egress.pfc_tx_xon", "ingress.pfc_rx_frames"),
    *("ingress.pfc_rx_invalid", "ingress.pause_rx_frames", "egress.pfc_tx_frames", "ingress.drops"),
    *("egress.tm_enqueued", "egress.tm_dequeued", "egress.tm_drop_queue", "egress.tm_drop_pg"),
    *("egress.tm_drop_headroom", "egress.tm_drop_pool", "egress.tm_drop_port", "egress.tm_drop_rx"),
    *("egress.tm_drop_storm_tx", "egress.tm_drop_storm_rx", "ingress.pfc_rx_storm"),
    *("egress.tm_qcn_samples", "egress.tm_qcn_cnms", "egress.cnm_tx", "ingress.cnm_rx"),
}

REGISTERS = {
    *("egress.tm_queue_depth", "egress.tm_queue_watermark", "egress.tm_pg_depth", "egress.tm_pg_headroom"),
    *("egress.tm_pg_watermark", "egress.tm_pg_headroom_watermark", "egress.tm_pg_xoff", "egress.tm_pause_left"),
    *("egress.tm_paused_ns", "egress.tm_pause_count", "egress.tm_pool_used", "egress.tm_pool_watermark"),
    *("egress.tm_headroom_pool_used", "egress.tm_headroom_pool_watermark", "egress.tm_storm_state"),
    *("egress.tm_storm_count", "egress.tm_xoff_ns", "egress.tm_xoff_count", "egress.tm_queue_sources"),
    *("egress.tm_delay_histogram", "egress.tm_pause_histogram", "egress.tm_xoff_histogram"),
}

TM_KINDS = {
    "egress.tm_port": "port",
    "egress.tm_pfc": "pfc",
    "egress.tm_scheduler": "scheduler",
    "egress.tm_priority_group": "priority_group",
    "egress.tm_queue": "queue",
    "egress.tm_pool": "pool",
    "egress.tm_enqueued": "enqueued",
    "egress.tm_dequeued": "dequeued",
    "egress.tm_drop_queue": "drop_queue_limit",
    "egress.tm_drop_pg": "drop_pg_limit",
    "egress.tm_drop_headroom": "drop_headroom",
    "egress.tm_drop_pool": "drop_pool",
    "egress.tm_drop_port": "drop_port",
    "egress.tm_drop_rx": "drop_rx",
    "egress.tm_queue_depth": "queue_depth",
    "egress.tm_queue_watermark": "queue_watermark",
    "egress.tm_pg_depth": "pg_depth",
    "egress.tm_pg_headroom": "pg_headroom",
    "egress.tm_pg_watermark": "pg_watermark",
    "egress.tm_pg_headroom_watermark": "pg_headroom_watermark",
    "egress.tm_pg_xoff": "pg_xoff",
    "egress.tm_pause_left": "pause_left",
    "egress.tm_paused_ns": "paused_ns",
    "egress.tm_pause_count": "pause_count",
    "egress.tm_pool_used": "pool_used",
    "egress.tm_headroom_pool": "headroom_pool",
    "egress.tm_pg_pool": "pg_pool",
    "egress.tm_storm": "storm",
    "egress.tm_watchdog": "watchdog",
    "egress.tm_qcn": "qcn",
    "egress.tm_qcn_samples": "qcn_samples",
    "egress.tm_qcn_cnms": "qcn_cnms",
    "egress.tm_drop_storm_tx": "drop_storm_tx",
    "egress.tm_drop_storm_rx": "drop_storm_rx",
    "egress.tm_queue_sources": "queue_sources",
    "egress.tm_pool_watermark": "pool_watermark",
    "egress.tm_headroom_pool_used": "headroom_pool_used",
    "egress.tm_headroom_pool_watermark": "headroom_pool_watermark",
    "egress.tm_storm_state": "storm_state",
    "egress.tm_storm_count": "storm_count",
    "egress.tm_xoff_ns": "xoff_ns",
    "egress.tm_xoff_count": "xoff_count",
    "egress.tm_delay_histogram": "delay_histogram",
    "egress.tm_pause_histogram": "pause_histogram",
    "egress.tm_xoff_histogram": "xoff_histogram",
}

TM_FIELDS = {
    "model": 8,
    "priority": 3,
    "pg": 3,
    "lossless": 1,
    "pause_valid": 1,
    "pause_vector": 8,
    **{f"pause_time{n}": 16 for n in range(8)},
    "pfc_request": 1,
    "pfc_vector": 8,
    **{f"pfc_time{n}": 16 for n in range(8)},
    "enq_depth_bytes": 32,
    "deq_depth_bytes": 32,
    "pause_forever": 8,
    "event": 4,
    "event_port": 9,
    "event_priority": 3,
    "cnm_request": 1,
    "cnm_qfb": 6,
    "cnm_priority": 3,
    "reserved_cnm": 6,
    "cnm_qoff": 16,
    "cnm_qdelta": 16,
    "cnm_cpid": 64,
}


def load_build_script() -> ModuleType:
    """p4src/build.py as a module (p4src is not a package)."""
    spec = importlib.util.spec_from_file_location("dcb_p4_build", REPOSITORY / "p4src" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def p4info() -> Any:
    return text_format.Parse((BUILD / "dcb.p4info.txtpb").read_text(), p4i.P4Info())


@pytest.fixture(scope="module")
def program() -> Any:
    return json.loads((BUILD / "dcb.json").read_text())


# --- the manifest -------------------------------------------------------------------------------------------------


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


OUTPUTS = ("dcb.json", "dcb.p4info.txtpb", "dcb_bmv2.json", "dcb_bmv2.p4info.txtpb")


def differences(manifest: Any, repository: Path) -> list[str]:
    """What in `repository` is not as the manifest says."""
    sources = {f"p4src/{path.name}": sha256(path) for path in (repository / "p4src").glob("*.p4")}
    outputs = {name: sha256(repository / "p4src" / "build" / name) for name in OUTPUTS}
    found = []
    for kind, there in (("sources", sources), ("outputs", outputs)):
        listed = manifest[kind]
        found += [f"{name}: not in {kind}" for name in there.keys() - listed.keys()]
        found += [f"{name}: gone" for name in listed.keys() - there.keys()]
        found += [f"{name}: differs" for name in there.keys() & listed.keys() if there[name] != listed[name]]
    return sorted(found)


def test_the_build_is_of_these_sources() -> None:
    manifest = json.loads((BUILD / "manifest.json").read_text())
    assert differences(manifest, REPOSITORY) == [], "run `make p4`"
    assert manifest["command"].startswith("p4c --target bmv2 --arch v1model ")
    assert manifest["p4c"][0].isdigit()


def test_the_manifest_catches_a_change(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "p4src", tmp_path / "p4src")
    manifest = json.loads((BUILD / "manifest.json").read_text())
    with (tmp_path / "p4src" / "tm.p4").open("a") as source:
        source.write("// changed\n")
    (tmp_path / "p4src" / "new.p4").touch()
    (tmp_path / "p4src" / "pfc.p4").unlink()
    with (tmp_path / "p4src" / "build" / "dcb.json").open("a") as output:
        output.write("\n")
    assert differences(manifest, tmp_path) == [
        "dcb.json: differs",
        "p4src/new.p4: not in sources",
        "p4src/pfc.p4: gone",
        "p4src/tm.p4: differs",
    ]


@pytest.mark.skipif(shutil.which("p4c") is None, reason="p4c is not on the PATH")
def test_p4c_makes_the_same_bytes(tmp_path: Path) -> None:
    build = load_build_script()
    committed = json.loads((BUILD / "manifest.json").read_text())
    version = build.p4c_version("p4c")
    if version != committed["p4c"]:
        pytest.skip(f"p4c {version} is on the PATH, the build is of p4c {committed['p4c']}")
    build.compile_into(tmp_path)
    for name in build.OUTPUT_NAMES:
        assert (tmp_path / name).read_bytes() == (BUILD / name).read_bytes(), name
    assert build.manifest(version, tmp_path) == (BUILD / "manifest.json").read_text()


def test_no_path_of_the_build_machine_is_left(program: Any) -> None:
    assert program["program"] == "p4src/dcb.p4"
    text = "".join((BUILD / name).read_text() for name in OUTPUTS)
    assert '"/' not in text


# --- P4Info -------------------------------------------------------------------------------------------------------


def named(objects: Any) -> dict[str, Any]:
    return {thing.preamble.name: thing for thing in objects}


def test_tables_and_their_keys(p4info: Any) -> None:
    tables = named(p4info.tables)
    assert tables.keys() == TABLES.keys()
    kinds = p4i.MatchField.MatchType
    for name, (keys, _) in TABLES.items():
        fields = [(f.name, kinds.Name(f.match_type), f.bitwidth) for f in tables[name].match_fields]
        assert fields == keys, name


def test_actions_of_each_table(p4info: Any) -> None:
    by_id = {action.preamble.id: action.preamble.name for action in p4info.actions}
    default_only = p4i.ActionRef.Scope.Value("DEFAULT_ONLY")
    for name, table in named(p4info.tables).items():
        refs = [by_id[ref.id] for ref in table.action_refs if ref.scope != default_only]
        assert refs == TABLES[name][1], name


def test_parameters_of_each_action(p4info: Any) -> None:
    actions = named(p4info.actions)
    for name, parameters in ACTIONS.items():
        assert [(p.name, p.bitwidth) for p in actions[name].params] == parameters, name


def test_the_selector(p4info: Any) -> None:
    (profile,) = p4info.action_profiles
    assert profile.preamble.name == "ingress.ecmp"
    assert profile.with_selector
    assert profile.size == 1024
    assert profile.max_group_size >= 16
    nexthop = named(p4info.tables)["ingress.nexthop"]
    assert list(profile.table_ids) == [nexthop.preamble.id]
    assert nexthop.implementation_id == profile.preamble.id


def test_counters(p4info: Any) -> None:
    counters = named(p4info.counters)
    assert counters.keys() == COUNTERS
    both = p4i.CounterSpec.Unit.Value("BOTH")
    assert {(counter.size, counter.spec.unit) for counter in counters.values()} == {(4096, both)}
    (direct,) = p4info.direct_counters
    assert direct.preamble.name == "ingress.acl_hits"
    assert direct.spec.unit == both
    assert direct.direct_table_id == named(p4info.tables)["ingress.acl"].preamble.id


def test_registers(p4info: Any) -> None:
    registers = named(p4info.registers)
    assert registers.keys() == REGISTERS
    for name, register in registers.items():
        size = 4096 * 32 if name.endswith("_histogram") else 4096
        bits = 256 if name == "egress.tm_queue_sources" else 64
        assert (register.size, register.type_spec.bitstring.bit.bitwidth) == (size, bits), name


def test_the_storm_control_meter(p4info: Any) -> None:
    (meter,) = p4info.meters
    assert (meter.preamble.name, meter.size) == ("ingress.pfc_rx_meter", 512)
    assert meter.spec.unit == p4i.MeterSpec.Unit.Value("PACKETS")


def test_what_is_the_traffic_managers_is_marked(p4info: Any) -> None:
    marked = {}
    for objects in (p4info.tables, p4info.counters, p4info.registers):
        for thing in objects:
            for annotation in thing.preamble.annotations:
                if annotation.startswith("@tm("):
                    marked[thing.preamble.name] = annotation
    assert marked == {name: f'@tm("{kind}")' for name, kind in TM_KINDS.items()}


def test_tables_are_big_enough_for_every_port(p4info: Any) -> None:
    per_port = {"ingress_port": 512, "egress_port": 512, "port": 512}
    for name, table in named(p4info.tables).items():
        fields = {field.name for field in table.match_fields}
        ports = [per_port[field] for field in fields if field in per_port]
        if ports:
            assert table.size >= ports[0] * (8 if len(fields) == 2 else 1), name


def test_the_emulation_shows_the_same_objects(p4info: Any) -> None:
    """Tables, counters and registers of dcb_bmv2 have the names, ids and shapes of dcb: one controller for both."""
    text = (BUILD / "dcb_bmv2.p4info.txtpb").read_text()
    emulation = text_format.Parse(text, p4i.P4Info())
    assert named(emulation.counters) == named(p4info.counters)
    assert list(emulation.action_profiles) == list(p4info.action_profiles)
    assert list(emulation.controller_packet_metadata) == list(p4info.controller_packet_metadata)
    actions = named(emulation.actions)
    for name, action in named(p4info.actions).items():
        assert actions[name] == action, name
    assert {name for name in actions if name not in named(p4info.actions)} == {
        name for name in actions if ".emu_" in name
    }
    tables = named(emulation.tables)
    assert tables.keys() == named(p4info.tables).keys()
    for name, table in named(p4info.tables).items():
        assert list(tables[name].match_fields) == list(table.match_fields), name
        assert list(tables[name].action_refs) == list(table.action_refs), name
        assert tables[name].preamble == table.preamble
    program = json.loads((BUILD / "dcb_bmv2.json").read_text())
    assert tables.keys() <= {table["name"] for pipeline in program["pipelines"] for table in pipeline["tables"]}
    registers = named(emulation.registers)
    for name, register in named(p4info.registers).items():
        assert registers[name] == register, name
    assert all("emu_" in name for name in registers.keys() - named(p4info.registers).keys())


def test_packet_io_headers(p4info: Any) -> None:
    headers = named(p4info.controller_packet_metadata)
    assert {name: [(m.name, m.bitwidth) for m in header.metadata] for name, header in headers.items()} == {
        "packet_in": [("ingress_port", 9), ("priority", 3), ("reason", 4)],
        "packet_out": [("egress_port", 9), ("queue", 3), ("pad", 4)],
    }


# --- JSON ---------------------------------------------------------------------------------------------------------


def test_the_traffic_manager_finds_its_header(program: Any) -> None:
    (instance,) = (h for h in program["headers"] if h["name"] == "tm" or h["name"].endswith(".tm"))
    (header_type,) = (t for t in program["header_types"] if t["name"] == instance["header_type"])
    widths = {name: bits for name, bits, *_ in header_type["fields"]}
    assert {name: widths.get(name) for name in TM_FIELDS} == TM_FIELDS
    for deparser in program["deparsers"]:
        assert instance["name"] not in deparser["order"]


def test_json_and_p4info_name_the_same_tables(program: Any, p4info: Any) -> None:
    in_json = {table["name"] for pipeline in program["pipelines"] for table in pipeline["tables"]}
    assert {table.preamble.name for table in p4info.tables} <= in_json
    assert {counter["name"] for counter in program["counter_arrays"]} == COUNTERS | {"ingress.acl_hits"}
    assert {register["name"] for register in program["register_arrays"]} == REGISTERS
    p4info_actions = {action.preamble.name for action in p4info.actions}
    assert p4info_actions <= {action["name"] for action in program["actions"]}
