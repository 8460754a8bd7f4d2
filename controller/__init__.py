"""P4Runtime control plane of a lab: desired state from one YAML file, differences written to the switches.

Shape: `config` (YAML, pydantic) -> `desired` (table entries per switch) -> `diff` (against what a switch holds) ->
`switches` (one task per switch: connect, become primary, push the pipeline when it differs, read back, write the
difference) ; `state` reads counters and registers; `daemon` puts a unix control socket before all that and
`cli` (`dcbctl`) talks to it. `controller` knows a switch only through P4Runtime.

Use as a library, in the process of a lab::

    from controller import Controller, config

    cfg = config.load("lab.yaml")                    # or config.parse({...}); raises config.ConfigError
    async with Controller(cfg) as controller:        # one task per switch, reconnects for ever
        await controller.wait_synced(timeout=60)     # every switch holds its desired state; TimeoutError names the rest
        await controller.apply(new_cfg)              # change the desired state; then wait_synced() again
        counters = await controller.read_counters("leaf1", ["rx", "tm_drop_queue"], ports=[1, 2])
        counters["rx"][1, 3].packets                 # port 1, priority (or queue, group, reason) 3
        registers = await controller.read_registers("leaf1", ["tm_queue_watermark"], ports=[1])
        registers["tm_queue_watermark"][1, 3]        # bytes
        await controller.clear_counters("leaf1", ["rx"], ports=[1])
        await controller.packet_out("leaf1", port=1, payload=frame, queue=7)
        controller.status()                          # list of SwitchStatus: state, updates written, last error

So that `dcbctl` works on such a lab too, put the control socket around it::

    from controller.daemon import ControlServer, control_socket

    async with Controller(cfg) as controller, ControlServer(controller, control_socket("lab"), "lab.yaml"):
        ...

`Controller(cfg, p4=P4Program.load(directory), packet_handler=handler)`: the program is by default p4src/build of this
repository (or `$DCBLAB_P4`); `handler(switch, PacketIn)` gets every packet-in. `config.dump(cfg)` gives the YAML text
and `config.save(cfg, path)` writes it; `config.warnings(cfg)` lists legal configs that will lose frames.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from controller.control import Controller
    from controller.program import P4Program, ProgramError
    from controller.state import CounterValue
    from controller.switches import NotConnectedError, PacketIn, SwitchState, SwitchStatus

__all__ = [
    "Controller",
    "CounterValue",
    "NotConnectedError",
    "P4Program",
    "PacketIn",
    "ProgramError",
    "SwitchState",
    "SwitchStatus",
]

_HOMES = {
    "Controller": "control",
    "CounterValue": "state",
    "NotConnectedError": "switches",
    "P4Program": "program",
    "PacketIn": "switches",
    "ProgramError": "program",
    "SwitchState": "switches",
    "SwitchStatus": "switches",
}


def __getattr__(name: str) -> Any:
    # imported at first use: `dcbctl show` needs neither gRPC nor pydantic, and would take three times as long
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"controller.{_HOMES[name]}"), name)
