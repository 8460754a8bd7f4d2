"""DCBX (IEEE 802.1Q clause 38): what two ends of a link tell each other about ETS, PFC and applications. Sans-IO.

How to use it, from a controller (one port per switch port, frames over packet-in and packet-out) or a host agent (one
port, frames over a packet socket):

    from dcb.dcbx.port import DcbxPort, OperationalChanged
    from dcb.dcbx.settings import DcbxSettings
    from dcb.dcbx.tlv import AppEntry, EtsTable, Selector, Tsa
    from dcb.lldp.agent import LocalSystem
    from dcb.lldp.tlv import ChassisId, PortId

    ets = EtsTable.build(priority_tc=(0, 0, 0, 1, 0, 0, 2, 0), bandwidth=(50, 50, 0, 0, 0, 0, 0, 0),
                         tsa=(Tsa.ETS, Tsa.ETS, Tsa.STRICT, 0, 0, 0, 0, 0))
    roce = AppEntry(Selector.UDP, 4791, priority=3)
    local = LocalSystem(ChassisId.mac(bridge_mac), PortId.interface("leaf1-eth1"), system_name="leaf1")
    port = DcbxPort(port_mac, local, DcbxSettings.switch(ets, pfc_enable=1 << 3, app=(roce,)))   # a host: .host()

    handle(port.set_link(True, now_ns))                       # carrier
    handle(port.receive(frame, now_ns))                       # every frame with EtherType 0x88CC, no FCS
    handle(port.handle_timer(now_ns))                         # when port.next_deadline_ns() has come (None: never)
    for frame in port.frames_to_send(now_ns): send(frame)     # after each of these three and of set_settings

    def handle(events):
        for event in events:
            if isinstance(event, OperationalChanged):         # event.changed: "ets", "pfc", "app", "agreed", "mode"
                program(port.operational)

`now_ns` is an integer of nanoseconds from any clock that does not go back. `port.operational` is what to program: `ets`
(priority to class, bandwidth, TSA), `pfc_enable` (bit map, for rx and tx alike), `pfc_agreed` (of those, what the peer
runs too: lossless over this link), `app`. `port.settings` is what was asked for, `port.remotes` what each neighbour
says, `port.lldp.counters`, `port.counters` and `port.last_error` what happened. To change a port while it runs, call
`port.set_settings(dataclasses.replace(port.settings, ...), now_ns)`.

A switch whose ports configure each other (roles, elected source) is `dcb.dcbx.fabric.DcbxSwitch`: the same calls, with
a port name before the other arguments. `dcb.dcbx.report` compares the two ends of a link, `dcb.dcbx.show` prints as
lldptool and iproute2's dcb do, `dcb.dcbx.status` gives all of a port as plain data for JSON and screens.

Modules: `tlv` (codec and rules), `machines` (asymmetric, symmetric), `settings`, `views` (neighbours), `port`,
`fabric`, `report`, `show`, `status`. Import from the modules; this one imports nothing.
"""
