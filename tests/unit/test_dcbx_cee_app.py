"""CEE negotiates applications: an end that is willing runs the peer's table, not a mixture with its own."""

from __future__ import annotations

from dataclasses import replace

from dcbx_net import HIGH, LOW, S, said, up

from dcb.cee.tlv import AppFeature, CeeApp, CeeTlv, Control, Feature, Header
from dcb.dcbx.settings import DcbxSettings, Mode
from dcb.dcbx.tlv import AppEntry, Selector


def test_willing_end_runs_the_peers_applications_and_keeps_only_what_cee_cannot_say() -> None:
    mine = (AppEntry(Selector.ETHER_TYPE, 0x8906, priority=3), AppEntry(Selector.DSCP, 26, priority=3))
    port = up(HIGH, replace(DcbxSettings.host(), app=mine))
    theirs = AppFeature((CeeApp(0, 0x8906, 1 << 5), CeeApp(1, 3260, 1 << 4)))
    tlv = CeeTlv(Control(1, 1), (Feature(Header(True, False, False), theirs),)).encode()
    port.receive(said(LOW, [tlv]), S)
    assert port.mode is Mode.CEE
    assert port.operational.app == (
        AppEntry(Selector.ETHER_TYPE, 0x8906, priority=5),
        AppEntry(Selector.ANY_PORT, 3260, priority=4),
        AppEntry(Selector.DSCP, 26, priority=3),
    )
