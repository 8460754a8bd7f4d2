"""The wait-for graph on hand-made views: chains to a host, to congestion, round in a ring; and the four questions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_deadlock_static import bounced, fabric

from controller import config
from controller.edit import SelectionError
from controller.links import PortRef
from controller.waitfor import Cause, FabricView, Queue, SwitchView, WaitGraph, sources
from controller.why import explain, one_port, possible
from controller.why_cli import text

QUANTA = 60000


def stuck(port: int, *, source: int, xoff: int, sent: int = 0) -> SwitchView:
    """Priority 3 of `port` is paused and holds 90,000 bytes that came in by `source`, whose group is XOFF."""
    return SwitchView(
        pause_left={(port, 3): QUANTA},
        depth={(port, 3): 90_000},
        packets={(port, 3): 500 + sent},
        sources={(port, 3): frozenset({source})},
        xoff=frozenset({(source, 3)}),
        rx_xoff={(port, 3): xoff},
        tx_xoff={(source, 3): xoff},
    )


def graph(data: dict[str, Any], now: dict[str, SwitchView], before: dict[str, SwitchView] | None = None) -> WaitGraph:
    parsed = config.parse(data)
    every = {name: SwitchView() for name in parsed.switches}
    first = FabricView(0, every | (before if before is not None else now))
    return WaitGraph(parsed, first, FabricView(200_000_000, every | now))


def storm() -> dict[str, SwitchView]:
    """h5 (leaf3 port 1) sends PFC; spine1 and leaf1 stand behind it."""
    return {
        "leaf3": stuck(1, source=3, xoff=10),
        "spine1": stuck(3, source=1, xoff=10),
        "leaf1": stuck(3, source=1, xoff=10),
    }


def ring() -> dict[str, SwitchView]:
    return {
        "leaf3": stuck(4, source=3, xoff=7),
        "spine2": stuck(2, source=3, xoff=7),
        "leaf2": stuck(3, source=4, xoff=7),
        "spine1": stuck(3, source=2, xoff=7),
    }


def test_sources_are_the_bits_of_the_register() -> None:
    assert sources(0) == frozenset()
    assert sources(1 << 255 | 0b1010) == {1, 3, 255}


def test_a_nic_storm_is_followed_to_the_host() -> None:
    seen = graph(fabric(), storm())
    (chain,) = seen.chains(Queue("leaf1", 3, 3))
    assert chain.cause is Cause.HOST
    assert [str(hop.queue) for hop in chain.hops] == [
        "leaf1:3 priority 3",
        "spine1:3 priority 3",
        "leaf3:1 priority 3",
    ]
    assert [hop.waits_for for hop in chain.hops] == [PortRef("spine1", 1), PortRef("leaf3", 3), None]
    assert chain.text == "leaf3:1 is paused by h5, which is no switch of this fabric"
    assert chain.propagation_hops == 3
    assert seen.cycles() == []


def test_congestion_is_where_the_chain_is_not_paused() -> None:
    views = storm()
    views["leaf3"] = replace(views["leaf3"], pause_left={})
    (chain,) = graph(fabric(), views).chains(Queue("leaf1", 3, 3))
    assert chain.cause is Cause.CONGESTION
    assert chain.text == "leaf3:1 priority 3 is not paused and holds 90000 bytes: congestion there"
    assert chain.propagation_hops == 2


def test_a_pause_whose_sender_has_drained_is_running_out() -> None:
    views = storm()
    views["spine1"] = SwitchView()
    (chain,) = graph(fabric(), views).chains(Queue("leaf1", 3, 3))
    assert chain.cause is Cause.DRAINED


def test_every_way_is_followed() -> None:
    """spine1 holds leaf1's packets for two leaves: one congested, one paused by a host."""
    views = storm()
    views["spine1"] = replace(
        views["spine1"],
        depth={(3, 3): 50_000, (2, 3): 40_000},
        sources={(3, 3): frozenset({1}), (2, 3): frozenset({1, 4})},
    )
    chains = graph(fabric(), views).chains(Queue("leaf1", 3, 3))
    assert [(chain.cause, str(chain.hops[-1].queue)) for chain in chains] == [
        (Cause.CONGESTION, "spine1:2 priority 3"),
        (Cause.HOST, "leaf3:1 priority 3"),
    ]


def test_a_ring_that_stands_still_is_a_deadlock_and_is_named_once() -> None:
    seen = graph(bounced(), ring())
    (found,) = seen.cycles()
    assert [str(queue) for queue in found] == [
        "leaf2:3 priority 3",
        "spine1:3 priority 3",
        "leaf3:4 priority 3",
        "spine2:2 priority 3",
    ]
    (chain,) = seen.chains(Queue("leaf3", 4, 3))
    assert chain.cause is Cause.DEADLOCK
    assert chain.text.endswith(
        "leaf3:4 priority 3 -> spine2:2 priority 3 -> leaf2:3 priority 3 -> spine1:3 priority 3 -> leaf3:4 priority 3"
    )


def test_a_ring_in_which_a_frame_moved_is_none() -> None:
    now = ring()
    now["spine2"] = stuck(2, source=3, xoff=7, sent=1)
    seen = graph(bounced(), now, ring())
    assert seen.cycles() == []
    (chain,) = seen.chains(Queue("leaf3", 4, 3))
    assert chain.cause is Cause.LOOP


def test_a_ring_that_is_paused_with_empty_queues_is_none() -> None:
    now = ring()
    now["leaf2"] = replace(now["leaf2"], depth={}, sources={})
    assert graph(bounced(), now).cycles() == []


def test_the_four_questions_of_a_storm() -> None:
    before, now = storm(), storm()
    now["leaf3"] = replace(now["leaf3"], rx_xoff={(1, 3): 25})
    answer = explain(graph(fabric(), now, before), PortRef("leaf3", 1), 3)
    assert [item["yes"] for item in answer["questions"]] == [True, False, False, False]
    assert answer["questions"][0]["evidence"] == "15 XOFF frames for priority 3 came in on leaf3:1 meanwhile"
    assert answer["chains"][0]["cause"] == "host"
    screen = text(answer)
    assert "leaf3-eth1 (leaf3:1, to h5), priority 3: paused, 60000 quanta left; 90000 bytes wait" in screen
    assert "a watchdog or storm control on the port contains it" in screen


def test_a_pause_that_does_not_count_down_is_infinite() -> None:
    answer = explain(graph(fabric(), storm()), PortRef("leaf1", 3), 3)
    assert [item["yes"] for item in answer["questions"]] == [False, False, True, False]
    later = storm()
    later["leaf1"] = replace(later["leaf1"], pause_left={(3, 3): QUANTA - 1000}, rx_xon={(3, 3): 1})
    answer = explain(graph(fabric(), later, storm()), PortRef("leaf1", 3), 3)
    assert [item["yes"] for item in answer["questions"]] == [False, True, False, False]


def test_a_look_too_short_to_see_a_refresh_says_so() -> None:
    """At 20 Mb/s half of 65535 quanta are 0.839 s; at 100 Mb/s 0.168 s, within the 0.2 s between the two looks."""
    slow = fabric()
    for switch in slow["switches"].values():
        for port in switch["ports"].values():
            port["rate"] = "20M"
    answer = explain(graph(slow, storm()), PortRef("leaf1", 3), 3)
    assert answer["questions"][0]["evidence"] == (
        "0 XOFF frames for priority 3 came in on leaf1:3 meanwhile; "
        "a peer may take 0.839 s to say it again at this rate: ask with --interval 2"
    )
    answer = explain(graph(fabric(), storm()), PortRef("leaf1", 3), 3)
    assert answer["questions"][0]["evidence"].endswith("came in on leaf1:3 meanwhile")


def test_pfc_at_the_wrong_port() -> None:
    now = storm()
    now["leaf1"] = replace(now["leaf1"], rx_xoff={(3, 3): 14})  # more than spine1 ever sent there
    answer = explain(graph(fabric(), now, storm()), PortRef("leaf1", 3), 3)
    assert answer["questions"][3]["yes"]
    assert answer["questions"][3]["evidence"] == (
        "spine1:1 sent 0 XOFF meanwhile (10 in all), leaf1:3 received 4 (14 in all)"
    )
    now = storm()
    now["leaf1"] = replace(now["leaf1"], rx_invalid={(3, 0): 2})
    answer = explain(graph(fabric(), now, storm()), PortRef("leaf1", 3), 3)
    assert answer["questions"][3]["yes"]
    assert "2 frames" in answer["questions"][3]["evidence"]


def test_a_queue_that_is_not_paused() -> None:
    answer = explain(graph(fabric(), {}), PortRef("leaf1", 1), 3)
    assert answer["chains"] == []
    assert answer["summary"] == "leaf1:1 priority 3 is not paused and holds nothing"


def test_one_port_is_wanted() -> None:
    parsed = config.parse(fabric())
    assert one_port(parsed, "leaf1-eth3") == PortRef("leaf1", 3)
    with pytest.raises(SelectionError, match="one port is wanted"):
        one_port(parsed, "leaf1")


def test_possible_is_plain_data() -> None:
    (found,) = possible(config.parse(bounced()))
    assert found["text"].count(" -> ") == 4
    assert len(found["dependencies"]) == 4
