"""The C sender's PFC gates in virtual time (`roce replay`, sanitizer build), against the standard and dcb.pfc."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcb import pfc
from dcb.pfc import PauseFrame, PfcError, PfcFrame, Reason
from hosts.roce import binary

SOURCE = bytes.fromhex("020100000001")
REASONS = {
    Reason.DESTINATION: "destination",
    Reason.LENGTH: "length",
    Reason.PAD: "pad",
    Reason.OPCODE: "opcode",
    Reason.ZERO_VECTOR: "zero_vector",
}


def replay(steps: list[tuple[int, bytes | None]], *options: str, rate: str = "40G") -> list[dict[str, Any]]:
    text = "".join(f"{t} {'-' if frame is None else frame.hex()}\n" for t, frame in steps)
    command = [binary(sanitize=True), "replay", "--link-rate", rate, *options]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def frame(**requests: int) -> bytes:
    """frame(p3=100): XOFF of priority 3 for 100 quanta."""
    return pfc.build_pfc(pfc.pfc_frame(SOURCE, {int(name[1:]): quanta for name, quanta in requests.items()}))


def test_65535_quanta_at_40g_end_after_838848_ns() -> None:
    states = replay([(1000, frame(p3=65535)), (839_847, None), (839_848, None)])
    assert [s["until_ns"][3] for s in states] == [839_848, 839_848, 0]
    assert states[2]["paused_ns_by_priority"] == [0, 0, 0, 838_848, 0, 0, 0, 0]


def test_only_the_named_priority_is_paused() -> None:
    (state,) = replay([(0, frame(p3=10, p5=0))], rate="1G")
    assert state["until_ns"] == [0, 0, 0, 5120, 0, 0, 0, 0]
    assert state["pfc_xoff_rx_by_priority"] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert state["pfc_xon_rx_by_priority"] == [0, 0, 0, 0, 0, 1, 0, 0]


def test_a_new_time_replaces_the_running_one() -> None:
    """Longer or shorter, counted from its own arrival; the pause goes on unbroken."""
    states = replay([(0, frame(p3=1000)), (100, frame(p3=10)), (5219, None), (5220, None)], rate="1G")
    assert [s["until_ns"][3] for s in states] == [512_000, 5220, 5220, 0]
    assert (states[3]["pauses_by_priority"][3], states[3]["paused_ns_by_priority"][3]) == (1, 5220)


def test_time_zero_resumes_at_once_and_a_clear_bit_changes_nothing() -> None:
    stray = pfc.build_pfc(PfcFrame(SOURCE, 1 << 4, (0, 0, 0, 0, 9, 0, 0, 0)))
    states = replay([(0, frame(p3=1000)), (50, stray), (70, frame(p3=0))], rate="1G")
    assert [s["until_ns"][3] for s in states] == [512_000, 512_000, 0]
    assert states[2]["paused_ns_by_priority"][3] == 70


def test_a_pause_that_ran_out_before_the_next_frame_counts_for_its_own_length() -> None:
    states = replay([(0, frame(p3=1)), (10_000, frame(p3=1)), (20_000, None)], rate="1G")
    assert (states[2]["pauses_by_priority"][3], states[2]["paused_ns_by_priority"][3]) == (2, 1024)


def test_disabled_priorities_are_counted_and_not_paused() -> None:
    (state,) = replay([(0, frame(p3=5, p4=5))], "--enabled", "0x10", rate="1G")
    assert state["until_ns"] == [0, 0, 0, 0, 2560, 0, 0, 0]
    assert state["pfc_xoff_rx_by_priority"] == [0, 0, 0, 1, 1, 0, 0, 0]


def test_pause_frames_only_where_honoured() -> None:
    steps: list[tuple[int, bytes | None]] = [(0, pfc.build_pause(PauseFrame(SOURCE, 2)))]
    (ignored,) = replay(steps, rate="1G")
    (obeyed,) = replay(steps, "--honour-pause", rate="1G")
    assert (ignored["pause_frames_rx"], ignored["until_ns"]) == (1, [0] * 8)
    assert (obeyed["pause_frames_rx"], obeyed["until_ns"]) == (1, [1024] * 8)


@pytest.mark.parametrize(("rate", "until_ns"), [("100M", 335_539_200), ("10G", 3_355_392), ("3G", 11_184_640)])
def test_quanta_are_of_the_link_rate(rate: str, until_ns: int) -> None:
    (state,) = replay([(0, frame(p0=65535))], rate=rate)
    assert state["until_ns"][0] == until_ns


GOOD = frame(p3=100)


def _mutated(changes: list[tuple[int, int]], length: int) -> bytes:
    data = bytearray(GOOD.ljust(70, b"\0"))
    for at, value in changes:
        data[at] = value
    return bytes(data[:length])


near_misses = st.builds(
    _mutated,
    st.lists(
        st.tuples(st.sampled_from([0, 5, 14, 15, 16, 17, 18, 25, 33, 34, 59, 60]), st.integers(0, 255)), max_size=3
    ),
    st.one_of(st.just(60), st.integers(0, 70)),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(near_misses, min_size=1, max_size=60))
def test_c_and_python_agree_on_every_frame(frames: list[bytes]) -> None:
    """Same frames accepted, same reason for each refusal, same requests taken."""
    expected = {
        "invalid": dict.fromkeys(REASONS.values(), 0),
        **{"frames": 0, "pause": 0, "high": 0, "xoff": [0] * 8, "xon": [0] * 8},
    }
    for data in frames:
        try:
            parsed = pfc.parse(data)
        except PfcError as error:
            if error.reason is not None:
                expected["invalid"][REASONS[error.reason]] += 1  # type: ignore[index]
            continue
        if isinstance(parsed, PauseFrame):
            expected["pause"] += 1  # type: ignore[operator]
            continue
        expected["frames"] += 1  # type: ignore[operator]
        expected["high"] += parsed.high_byte != 0  # type: ignore[operator]
        for name, priorities in (("xoff", parsed.xoff), ("xon", parsed.xon)):
            for n in priorities:
                expected[name][n] += 1  # type: ignore[index]
    last = replay([(n, data) for n, data in enumerate(frames)])[-1]
    assert {
        "invalid": last["pfc_invalid"],
        "frames": last["pfc_frames_rx"],
        "pause": last["pause_frames_rx"],
        "high": last["pfc_high_byte_set"],
        "xoff": last["pfc_xoff_rx_by_priority"],
        "xon": last["pfc_xon_rx_by_priority"],
    } == expected
