"""Hosts with DCBX agents on their NICs in virtual time: what is agreed is what the NIC does; carrier is the agent's."""

from __future__ import annotations

from dcb.dcbx.machines import State
from dcb.dcbx.settings import DcbxSettings, Mode, Operational
from dcb.dcbx.tlv import AppEntry, EtsTable, Selector, Tsa
from hosts.nic_config import NicDcb
from topologies.dcbx import dcbx_config, source_dcbx
from topologies.description import leaf_spine
from topologies.settings import Dcb
from topologies.virtual import Bench
from topologies.virtual.agents import nic_settings, willing
from topologies.virtual.lab import LabSettings, VirtualLab
from topologies.virtual.plan import planned

G = 10**9


def lab_of(body: object, settings: LabSettings) -> None:
    topology = leaf_spine(1, 1, 2, 100 * G)
    config = dcbx_config(topology, planned(topology, Dcb(pfc=(3,)), length_m=5), source_dcbx([3], {0: 40, 3: 60}))
    Bench(debug=True).run("run", topology, config, body, settings)  # type: ignore[arg-type]


def test_a_nic_does_what_its_agent_runs() -> None:
    table = EtsTable.build(
        [0, 0, 0, 3, 0, 5, 6, 0], [39, 0, 0, 60, 0, 1, 0, 0], [Tsa.ETS, 0, 0, Tsa.ETS, 0, Tsa.ETS, Tsa.CBS, 0]
    )
    app = (AppEntry(Selector.DSCP, 26, 3), AppEntry(Selector.UDP, 4791, 3), AppEntry(Selector.DSCP, 48, 6))
    oper = Operational(Mode.IEEE, table, 0b11000, 0b1000, app, State.INIT, State.INIT, State.INIT, "", "", "")
    assert nic_settings(oper) == NicDcb(frozenset({3}), (0, 0, 0, 3, 0, 5, 6, 0), {0: 39, 3: 60, 5: 1}, {26: 3, 48: 6})


def test_hosts_learn_what_their_switch_says_and_lose_it_with_the_link() -> None:
    async def body(lab: VirtualLab) -> None:
        await lab.sleep(ms=20)
        h1 = lab.agents["h1"]
        assert h1.marks == {"priority": 3, "pcp": 3, "dscp": 26, "lossless": True}
        flow = lab.rdma("h1", "h2", bytes=100_000)  # as agreed
        await lab.finished([flow])
        assert lab.nics["h1"].stats().tx_frames_prio[3] == 98
        lab.set_link("h1", "leaf1", up=False)
        await lab.sleep(us=1)
        assert h1.marks["lossless"] is False
        assert lab.agents["h2"].marks["lossless"] is True
        await lab.sleep(ms=1)
        lab.set_link("h1", "leaf1", up=True)
        await lab.sleep(ms=20)
        assert h1.marks["lossless"] is False  # P4Runtime tells no carrier: leaf1 knows of nothing and says nothing new
        await lab.sleep(s=30)
        assert h1.marks["lossless"] is True  # its next regular PDU
        changes = [marks["lossless"] for _, marks in h1.changes]
        assert changes == [False, True, False, True]

    lab_of(body, LabSettings(dcbx=willing))


def test_each_host_says_what_it_is_told_to() -> None:
    def settings(host: object) -> DcbxSettings | None:
        name = getattr(host, "name")  # noqa: B009
        return DcbxSettings(pfc_enable=1 << 5) if name == "h2" else None

    async def body(lab: VirtualLab) -> None:
        await lab.sleep(ms=20)
        assert list(lab.agents) == ["h2"]
        oper = lab.agents["h2"].dcbx.agent.port.operational
        assert (oper.pfc_priorities, oper.lossless_priorities) == ((5,), ())
        assert lab.controller.running.switches["leaf1"].ports[2].pfc == []

    lab_of(body, LabSettings(dcbx=settings))
