"""Chains of two makers at a small scale: who interoperates, and what the captures say of it."""

from __future__ import annotations

import pytest

from topologies.scenario import Outcome, parse_options
from topologies.scenarios import vendor_chain
from topologies.scenarios.vendor_chain import STANDARD
from topologies.virtual import Bench

CHOSEN = (STANDARD, "B clears the bit for XON", "B clears the bit, A is told", "A heeds late, B does not know")


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vendor_chain, "CASES", {name: vendor_chain.CASES[name] for name in CHOSEN})
        patch.setattr(vendor_chain, "LOADS", (60, 120))
        options = parse_options(vendor_chain.OPTIONS, ["window_us=920"])
        return vendor_chain.run(Bench(options=options))


def test_claims(outcome: Outcome) -> None:
    held = {check.claim for check in outcome.checks if check.passed}
    assert "at 120% PFC goes the whole chain, and is seen at each node" in held
    assert f"{STANDARD}: nothing is lost, at full rate" in held
    assert "B clears the bit for XON: nothing is lost, but throughput is down by a fifth or more" in held
    assert "B clears the bit, A is told: nothing is lost, at full rate" in held
    assert "A heeds late, B does not know: lossless frames are lost" in held


def test_goodput_is_what_the_host_takes(outcome: Outcome) -> None:
    # the host takes 90 Gb/s of frame bytes, 1024 of 1082 are payload
    assert float(outcome.figures[f"{STANDARD}, 120%: Gb/s"]) == pytest.approx(90 * 1024 / 1082, rel=0.005)
    assert float(outcome.figures[f"{STANDARD}, 60%: Gb/s"]) == pytest.approx(60 * 1024 / 1106, rel=0.005)


def test_an_untold_reader_finds_the_dialect_in_the_capture(outcome: Outcome) -> None:
    between = [note for note in outcome.notes if note.startswith("B clears the bit for XON: swB to swA")]
    assert any(
        "XON is an enabled bit with time 0; to a peer of dialect D2 (clear-bit) this frame resumes" in n
        for n in between
    )
    assert any("vector" in note and "faults" in note for note in between)
    assert not any("hint" in note for note in outcome.notes if note.startswith(STANDARD))


def test_captures_are_named_as_links_name_them() -> None:
    fabric = vendor_chain.topology(10**11)
    assert vendor_chain._capture_name(fabric, "swB", "swA") == "swB-3_swA-2.pcap"
    assert vendor_chain._capture_name(fabric, "h2", "swB") == "h2-0_swB-1.pcap"
