"""Byte strings, match keys, P4Data and controller headers, checked against the specification's tables."""

from __future__ import annotations

import pytest
from finsy.proto import p4d, p4i, p4r, p4t
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from p4rt_client import Names, p4info

from switch.api import KeyMatch, MatchKind, MeterConfig
from switch.p4rt import codec, p4data
from switch.p4rt.bytestrings import decode_signed, decode_unsigned, encode_signed, encode_unsigned
from switch.p4rt.errors import P4RuntimeError
from switch.p4rt.schema import Schema, SchemaError

INFO = p4info()
SCHEMA = Schema(INFO)
NAMES = Names(INFO)


def refusal(call, *arguments: object, **options: object) -> tuple[str, str]:
    with pytest.raises(P4RuntimeError) as caught:
        call(*arguments, **options)
    return caught.value.code.name, caught.value.message


# Specification, "Examples of Valid Bytestring Encoding" (type, value, string, canonical) and "... Invalid ...".
@pytest.mark.parametrize(
    ("signed", "bits", "value", "data", "canonical"),
    [
        (False, 8, 99, b"\x63", True),
        (False, 16, 99, b"\x00\x63", False),
        (False, 16, 99, b"\x63", True),
        (False, 16, 12388, b"\x30\x64", True),
        (False, 16, 12388, b"\x00\x30\x64", False),
        (False, 12, 99, b"\x00\x63", False),
        (False, 12, 99, b"\x63", True),
        (False, 12, 99, b"\x00\x00\x63", False),
        (True, 8, 99, b"\x63", True),
        (True, 8, -99, b"\x9d", True),
        (True, 8, -99, b"\xff\x9d", False),
        (True, 12, -739, b"\xfd\x1d", True),
        (True, 16, 0, b"\x00\x00", False),
        (True, 16, 0, b"\x00", True),
    ],
)
def test_valid_byte_strings(signed: bool, bits: int, value: int, data: bytes, canonical: bool) -> None:
    pattern = value & ((1 << bits) - 1)
    decode = decode_signed if signed else decode_unsigned
    encoded = encode_signed(pattern, bits) if signed else encode_unsigned(pattern)
    assert decode(data, bits, "x") == pattern
    assert (encoded == data) is canonical


@pytest.mark.parametrize(
    ("signed", "bits", "data"),
    [
        (False, 8, b"\x01\x63"),
        (False, 8, b""),
        (False, 16, b"\x01\x00\x63"),
        (False, 12, b"\x10\x63"),
        (False, 12, b"\x01\x00\x63"),
        (False, 12, b"\x00\x40\x63"),
        (True, 8, b"\x00\x9d"),
        (True, 12, b"\x8d\x1d"),
        (True, 16, b""),
    ],
)
def test_invalid_byte_strings(signed: bool, bits: int, data: bytes) -> None:
    code, message = refusal(decode_signed if signed else decode_unsigned, data, bits, "field x")
    assert code == "OUT_OF_RANGE"
    assert message.startswith("field x: ")


@given(st.integers(1, 200).flatmap(lambda bits: st.tuples(st.just(bits), st.integers(0, (1 << bits) - 1))))
def test_byte_strings_round_trip(case: tuple[int, int]) -> None:
    bits, pattern = case
    assert decode_unsigned(encode_unsigned(pattern), bits, "x") == pattern
    assert decode_signed(encode_signed(pattern, bits), bits, "x") == pattern
    assert decode_unsigned(b"\0\0" + encode_unsigned(pattern), bits, "x") == pattern


def match(text: str) -> list[p4r.FieldMatch]:
    return list(text_format.Parse(text, p4r.TableEntry()).match)


ACL = SCHEMA.tables[NAMES["acl"]]
ROUTES = SCHEMA.tables[NAMES["routes"]]
L2 = SCHEMA.tables[NAMES["l2"]]


def test_acl_key() -> None:
    keys = codec.decode_match(
        "acl",
        ACL.fields,
        match(
            r'match { field_id: 4 range { low: "\x28" high: "\x05\xdc" } } match { field_id: 1 '
            r'ternary { value: "\x01" mask: "\x01\xff" } }'
        ),
    )
    assert keys == (
        KeyMatch(MatchKind.TERNARY, 1, mask=511),
        KeyMatch(MatchKind.TERNARY),
        KeyMatch(MatchKind.OPTIONAL),
        KeyMatch(MatchKind.RANGE, 40, high=1500),
    )
    encoded = codec.encode_match(ACL.fields, keys)
    assert [m.field_id for m in encoded] == [1, 4]
    assert codec.decode_match("acl", ACL.fields, encoded) == keys


@pytest.mark.parametrize(
    ("table", "text", "message"),
    [
        (L2, "", "match field hdr.ethernet.dst (1) is missing; an exact field cannot be left out"),
        (
            L2,
            r'match { field_id: 9 exact { value: "\x01" } }',
            "match field_id 9: not a key of it (it has 1 hdr.ethernet.dst)",
        ),
        (L2, r'match { field_id: 1 lpm { value: "\x01" prefix_len: 3 } }', "it is exact, the request has lpm"),
        (L2, "match { field_id: 1 }", "it is exact, the request has nothing"),
        (L2, r'match { field_id: 1 exact { value: "" } }', "empty byte string"),
        (L2, r'match { field_id: 1 exact { value: "\x01\x00\x00\x00\x00\x00\x00" } }', "does not fit in bit<48>"),
        (
            L2,
            r'match { field_id: 1 exact { value: "\x01" } } match { field_id: 1 exact { value: "\x01" } }',
            "match field hdr.ethernet.dst (1) is given twice",
        ),
        (ROUTES, r'match { field_id: 1 lpm { value: "\x00" prefix_len: 0 } }', "prefix_len 0: must be 1..32"),
        (
            ROUTES,
            r'match { field_id: 1 lpm { value: "\x0a\x00\x00\x00" prefix_len: 33 } }',
            "prefix_len 33: must be 1..32",
        ),
        (
            ROUTES,
            r'match { field_id: 1 lpm { value: "\x0a\x00\x00\x01" prefix_len: 24 } }',
            "bits after prefix_len 24 must be 0",
        ),
        (ACL, r'match { field_id: 1 ternary { value: "\x02" mask: "\x01" } }', "bits outside mask 0x1 must be 0"),
        (ACL, r'match { field_id: 1 ternary { value: "\x00" mask: "\x00" } }', "mask 0: leave the field out"),
        (ACL, r'match { field_id: 4 range { low: "\x02" high: "\x01" } }', "low 0x2: must not be above high 0x1"),
        (ACL, r'match { field_id: 4 range { low: "\x00" high: "\xff\xff" } }', "leave the field out"),
        (ACL, r'match { field_id: 3 optional { value: "\x01\x00" } }', "does not fit in bit<8>"),
    ],
)
def test_bad_keys(table, text: str, message: str) -> None:
    code, said = refusal(codec.decode_match, f"table {table.name}", table.fields, match(text))
    assert code == "INVALID_ARGUMENT"
    assert message in said
    assert table.name in said


def test_priority_rules() -> None:
    entry = text_format.Parse(r'match { field_id: 1 exact { value: "\x01" } } priority: 3', p4r.TableEntry())
    assert "priority 3: must be 0" in refusal(codec.decode_key, L2, entry)[1]
    assert "priority 0: must be positive" in refusal(codec.decode_key, ACL, p4r.TableEntry())[1]
    assert "priority -1: must be positive" in refusal(codec.decode_key, ACL, p4r.TableEntry(priority=-1))[1]


def action(name: str, *params: tuple[int, bytes]) -> p4r.Action:
    return p4r.Action(action_id=NAMES[name], params=[p4r.Action.Param(param_id=i, value=v) for i, v in params])


def test_actions() -> None:
    call = codec.decode_action(ROUTES, action("route", (2, b"\x00\x02"), (1, b"\x05")))
    assert (call.name, call.params) == ("IngressImpl.route", (5, 2))
    assert codec.encode_action(ROUTES.action_named("IngressImpl.route"), call) == action(
        "route", (1, b"\x05"), (2, b"\x02")
    )


@pytest.mark.parametrize(
    ("table", "message", "default", "code", "said"),
    [
        (ROUTES, p4r.Action(action_id=77), False, "INVALID_ARGUMENT", "action_id 0x4d: not an action of it"),
        (ROUTES, action("punt", (1, b"\x01")), False, "INVALID_ARGUMENT", "not an action of it"),
        (ROUTES, action("route", (1, b"\x01")), False, "INVALID_ARGUMENT", "parameter dst (2) is missing"),
        (
            ROUTES,
            action("route", (1, b"\x01"), (2, b"\x01"), (3, b"\x01")),
            False,
            "INVALID_ARGUMENT",
            "param_id 3: no such parameter",
        ),
        (
            ROUTES,
            action("route", (1, b"\x01"), (1, b"\x01"), (2, b"\x01")),
            False,
            "INVALID_ARGUMENT",
            "port (1) is given twice",
        ),
        (ROUTES, action("route", (1, b"\x02\x00"), (2, b"\x01")), False, "INVALID_ARGUMENT", "does not fit in bit<9>"),
        (L2, action("NoAction"), False, "PERMISSION_DENIED", "@defaultonly"),
        (L2, action("punt", (1, b"\x01")), True, "PERMISSION_DENIED", "@tableonly"),
    ],
)
def test_bad_actions(table, message: p4r.Action, default: bool, code: str, said: str) -> None:
    assert refusal(codec.decode_action, table, message, default=default)[0] == code
    assert said in refusal(codec.decode_action, table, message, default=default)[1]


def test_meters() -> None:
    meter = SCHEMA.meters[NAMES["port_meter"]]
    assert codec.decode_meter(meter, p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)) == MeterConfig(1, 2, 3, 4)
    assert refusal(codec.decode_meter, meter, p4r.MeterConfig(cir=4, pir=3))[1].endswith("cir 4: must not exceed pir 3")
    assert "cburst -1: must not be negative" in refusal(codec.decode_meter, meter, p4r.MeterConfig(cburst=-1))[1]
    assert "eburst 5" in refusal(codec.decode_meter, meter, p4r.MeterConfig(eburst=5))[1]


def metadata(*values: tuple[int, bytes]) -> list[p4r.PacketMetadata]:
    return [p4r.PacketMetadata(metadata_id=i, value=v) for i, v in values]


def test_controller_headers_are_packed_from_the_top_bit() -> None:
    # egress_port 9 bits = 5, queue 3 bits = 6, pad 4 bits: 000000101 110 0000
    packed = codec.pack_header(SCHEMA.packet_out, metadata((1, b"\x05"), (2, b"\x06"), (3, b"\x00")))
    assert packed == bytes([0b00000010, 0b11100000])
    assert (
        codec.pack_header(SCHEMA.packet_out, metadata((1, b"\x05"), (2, b"\x06"))) == packed
    )  # padding may be left out
    fields, payload = codec.unpack_header(SCHEMA.packet_in, bytes([0b11111111, 0b01010011]) + b"frame")
    assert fields == metadata((1, b"\x01\xfe"), (2, b"\x05"), (3, b"\x03"))
    assert payload == b"frame"
    with pytest.raises(ValueError, match="shorter than its header of 2"):
        codec.unpack_header(SCHEMA.packet_in, b"\x00")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (metadata((1, b"\x05")), "metadata queue (2) is missing"),
        (metadata((1, b"\x05"), (2, b"\x08")), "metadata queue: value 0x8 does not fit in bit<3>"),
        (metadata((1, b"\x05"), (2, b"\x01"), (9, b"\x01")), "metadata_id 9: not in P4Info"),
        (metadata((1, b"\x05"), (1, b"\x05"), (2, b"\x01")), "egress_port (1) is given twice"),
    ],
)
def test_bad_packet_out_metadata(fields: list[p4r.PacketMetadata], said: str) -> None:
    assert said in refusal(codec.pack_header, SCHEMA.packet_out, fields)[1]


def test_p4data_of_a_struct() -> None:
    kind = SCHEMA.digests[NAMES["learn_t"]].type
    assert [leaf.bits for leaf in p4data.leaves(kind)] == [48, 9]
    encoded = p4data.encode(kind, [0x02, 511])
    wanted = p4d.P4Data(
        struct=p4d.P4StructLike(members=[p4d.P4Data(bitstring=b"\x02"), p4d.P4Data(bitstring=b"\x01\xff")])
    )
    assert encoded == wanted
    assert p4data.decode(kind, encoded, "x") == [2, 511]
    assert refusal(p4data.decode, kind, p4d.P4Data(bitstring=b"\x01"), "x")[1] == "x: expected struct, got bitstring"
    short = p4d.P4Data(struct=p4d.P4StructLike(members=[p4d.P4Data(bitstring=b"\x02")]))
    assert refusal(p4data.decode, kind, short, "x")[1] == "x: expected 2 members, got 1"


def test_p4data_types() -> None:
    types = p4t.P4TypeInfo()
    types.new_types["port_t"].original_type.bitstring.bit.bitwidth = 9
    types.serializable_enums["e"].underlying_type.bitwidth = 4
    new = p4data.data_type(p4t.P4DataTypeSpec(new_type=p4t.P4NamedType(name="port_t")), types)
    assert new == p4data.Leaf("bit", 9)
    enum = p4data.data_type(p4t.P4DataTypeSpec(serializable_enum=p4t.P4NamedType(name="e")), types)
    assert p4data.encode(enum, [7]) == p4d.P4Data(enum_value=b"\x07")
    flag = p4data.data_type(p4t.P4DataTypeSpec(bool=p4t.P4BoolType()), types)
    assert p4data.encode(flag, [1]) == p4d.P4Data(bool=True)
    assert p4data.decode(flag, p4d.P4Data(bool=True), "x") == [1]
    with pytest.raises(p4data.UnsupportedType, match="'nope' is not in type_info"):
        p4data.data_type(p4t.P4DataTypeSpec(struct=p4t.P4NamedType(name="nope")), types)


def test_schema_lists_everything_that_is_wrong() -> None:
    info = p4i.P4Info()
    info.CopyFrom(INFO)
    info.tables[0].action_refs[0].id = 1234
    info.tables[1].preamble.id = info.tables[0].preamble.id
    info.action_profiles[0].table_ids[0] = 99
    del info.direct_counters[:]
    with pytest.raises(SchemaError) as caught:
        Schema(info)
    said = "\n".join(caught.value.problems)
    assert "table IngressImpl.l2: action id 0x4d2 is not in P4Info" in said
    assert "table IngressImpl.smac: id" in said
    assert "is taken by IngressImpl.l2" in said
    assert "action profile IngressImpl.shared: table 0x63 is not in P4Info" in said
    assert "table IngressImpl.acl: direct resource" in said
    assert len(caught.value.problems) == 4


def test_ids_of_another_kind() -> None:
    assert refusal(SCHEMA.table, 0) == ("INVALID_ARGUMENT", "table_id: must be set")
    assert "which is of another kind" in refusal(SCHEMA.table, NAMES["ecmp"])[1]
    assert refusal(SCHEMA.table, 12345)[0] == "NOT_FOUND"
    assert "use DirectCounterEntry" in refusal(SCHEMA.counter, NAMES["acl_counter"])[1]
    assert "use DirectMeterEntry" in refusal(SCHEMA.meter, NAMES["acl_meter"])[1]
