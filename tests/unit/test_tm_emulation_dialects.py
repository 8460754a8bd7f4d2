"""Dialects and storm control in dcb_bmv2: they are plain P4, and the emulated pause takes them."""

from __future__ import annotations

from test_tm_emulation import IN, OUT, PRIORITY, Emulated, data_frame, exact, pfc_frame

from switch.api import ActionCall, MeterConfig

D2, D1 = 1, 2


def switch(dialect: int, storm_action: int = 0) -> Emulated:
    made = Emulated()
    made.pipeline.now_us = 1_000_000
    made.pipeline.table_insert(
        "ingress.pfc_policy", exact(OUT), 0, ActionCall("ingress.set_pfc_policy", (dialect, storm_action))
    )
    return made


def test_a_pause_until_resumed_outlasts_every_time() -> None:
    made = switch(D1)
    made.arrive(pfc_frame({PRIORITY: 0x8000}), OUT)
    made.arrive(data_frame(1))
    for _ in range(3):
        made.pipeline.now_us += 10_000_000  # 65535 quanta at 8 Mb/s are 4.2 s
        made.laps()
    assert made.data() == []
    made.arrive(pfc_frame({PRIORITY: 0}), OUT)
    made.laps()
    assert made.data() == [1]
    assert made.register("emu_paused") == 30_000_000


def test_a_cleared_bit_resumes() -> None:
    made = switch(D2)
    made.arrive(pfc_frame({PRIORITY: 1000}), OUT)
    made.arrive(data_frame(1))
    made.laps()
    assert made.data() == []
    made.arrive(pfc_frame({}), OUT)
    made.laps()
    assert made.data() == [1]


def test_what_is_sent() -> None:
    made = Emulated()
    made.pipeline.now_us = 1_000_000
    made.pipeline.table_insert("egress.pfc_tx_dialect", exact(IN), 0, ActionCall("egress.set_pfc_dialect", (D1 | D2,)))
    made.arrive(pfc_frame({PRIORITY: 1000}), OUT)
    for number in range(10):
        made.arrive(data_frame(number))
    made.laps()
    sent = [frame for port, frame in made.out if port == IN]
    assert {(frame[17], frame[24:26]) for frame in sent} == {(1 << PRIORITY, b"\x80\x00")}
    made.out.clear()
    made.arrive(pfc_frame({PRIORITY: 0}), OUT)
    made.laps()
    (resume,) = (frame for port, frame in made.out if port == IN)
    assert resume[16:34] == bytes(18)


def test_storm_control_ignores_what_is_red() -> None:
    made = switch(0, 2)
    made.pipeline.meter_write("ingress.pfc_rx_meter", OUT, MeterConfig(1, 2, 1, 2))
    for quanta in (1, 2, 3, 4):
        made.arrive(pfc_frame({PRIORITY: quanta}), OUT)
    assert made.register("emu_until") == 1_000_000 + 2 * 64  # the second is the last that is heard
    assert made.counted("ingress.pfc_rx_storm") == {OUT * 8: 2}
