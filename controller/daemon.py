"""A controller that others can talk to: a unix socket with one JSON request and one JSON answer a line.

`ControlServer` wraps a running `Controller`, in `dcbctl run` or inside the process of a lab; `serve` is all of
`dcbctl run`. Request: {"method": "show", "params": {...}}. Answer: {"ok": true, "result": ...} or {"ok": false,
"error": text, "code": 2 for wrong use, 1 otherwise}. Requests that change the desired state run one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from finsy import P4ClientError

from controller import buffer_edit, dcbx_control, edit, telemetry_control, views, watchdog_control, why
from controller import config as configuration
from controller.config import Config, ConfigError
from controller.control import Controller
from controller.paths import control_socket as control_socket  # users of ControlServer find it here
from controller.program import P4Program, ProgramError
from controller.switches import NotConnectedError, SwitchState, describe

LOGGER = logging.getLogger("dcblab.controller")
_SETTLE_SECONDS = 30.0
_MAX_LINE_BYTES = 2**20


class RequestError(ValueError):
    """A request that is not understood."""


def _target(params: dict[str, Any]) -> str | None:
    """A switch or port by name; None for all."""
    return None if params.get("target") is None else _text(params, "target")


def _text(params: dict[str, Any], name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str):
        raise RequestError(f"{name}: {value!r}: a string is wanted")
    return value


def _interval(params: dict[str, Any]) -> float:
    value = params.get("interval", why.DEFAULT_INTERVAL_S)
    if not isinstance(value, int | float) or not 0 < value <= why.LONGEST_INTERVAL_S:
        raise RequestError(f"interval: {value!r}: more than 0 and at most {why.LONGEST_INTERVAL_S:g} seconds")
    return float(value)


class ControlServer:
    """Async context manager: the control socket of a running controller. `config_path`: for reload and --save."""

    def __init__(
        self, controller: Controller, socket_path: str | os.PathLike[str], config_path: str | os.PathLike[str] | None
    ) -> None:
        self._controller = controller
        self._socket_path = Path(socket_path)
        self._config_path = None if config_path is None else Path(config_path)
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self._methods: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "status": self._status,
            "show": self._show,
            "set": self._set,
            "reload": self._reload,
            "config": self._config,
            "clear": self._clear,
            "dcbx": self._dcbx,
            "telemetry": self._telemetry,
            "why": self._why,
            "deadlock": self._deadlock,
            "pfcwd": self._pfcwd,
        }

    async def __aenter__(self) -> Self:
        """Open the socket. OSError when another controller answers there or the directory cannot be made."""
        self._socket_path.parent.mkdir(parents=True, exist_ok=True)
        if self._socket_path.exists():
            try:
                _, writer = await asyncio.open_unix_connection(str(self._socket_path))
            except OSError:
                self._socket_path.unlink(missing_ok=True)  # left over from a controller that was killed
            else:
                writer.close()
                raise OSError(f"control socket {self._socket_path}: another controller answers there")
        self._server = await asyncio.start_unix_server(self._accept, path=str(self._socket_path), limit=_MAX_LINE_BYTES)
        self._socket_path.chmod(0o660)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._socket_path.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self.answer(line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:  # ValueError: a line beyond the limit
            LOGGER.debug("control socket: %s", error)
        finally:
            self._clients.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, OSError):
                await writer.wait_closed()

    async def answer(self, line: bytes) -> dict[str, Any]:
        """One request line -> one answer. Never raises."""
        try:
            try:
                request = json.loads(line)
            except ValueError as error:
                raise RequestError(f"request: not JSON: {error}") from None
            if not isinstance(request, dict) or not isinstance(request.get("params", {}), dict):
                raise RequestError("request: an object with method and params is wanted")
            method = self._methods.get(request.get("method", ""))
            if method is None:
                raise RequestError(f"method: {request.get('method')!r}: one of {', '.join(self._methods)} is wanted")
            return {"ok": True, "result": await method(request.get("params", {}))}
        except (
            ConfigError,
            edit.SelectionError,
            RequestError,
            dcbx_control.DcbxRequestError,
            telemetry_control.TelemetryRequestError,
            watchdog_control.WatchdogRequestError,
            ProgramError,
        ) as error:
            return {"ok": False, "error": str(error), "code": 2}
        except P4ClientError as error:
            return {"ok": False, "error": describe(error), "code": 1}
        except (NotConnectedError, OSError, TimeoutError, watchdog_control.StormedError) as error:
            return {"ok": False, "error": str(error) or type(error).__name__, "code": 1}
        except Exception as error:  # a bug in one request must not end the controller
            LOGGER.exception("control socket: request %r failed", line)
            return {"ok": False, "error": f"internal error: {type(error).__name__}: {error}", "code": 1}

    # ---- methods --------------------------------------------------------------------------------------------------

    async def _status(self, _params: dict[str, Any]) -> Any:
        return {
            "config": None if self._config_path is None else str(self._config_path),
            "cookie": f"{self._controller.program.cookie:#018x}",
            "switches": [asdict(item) | {"state": item.state.value} for item in self._controller.status()],
            "warnings": configuration.warnings(self._controller.config),
        }

    async def _show(self, params: dict[str, Any]) -> Any:
        what = _text(params, "what")
        if what not in views.VIEWS:
            raise RequestError(f"what: {what!r}: one of {', '.join(views.VIEWS)} is wanted")
        return await views.collect(self._controller, what, _target(params))

    async def _dcbx(self, params: dict[str, Any]) -> Any:
        return await dcbx_control.answer(self._controller, params)

    async def _why(self, params: dict[str, Any]) -> Any:
        priority = params.get("priority")
        if not isinstance(priority, int) or not 0 <= priority <= 7:
            raise RequestError(f"priority: {priority!r}: 0..7 is wanted")
        return await why.why(self._controller, _text(params, "target"), priority, _interval(params))

    async def _deadlock(self, params: dict[str, Any]) -> Any:
        return await why.deadlock(self._controller, _interval(params))

    async def _telemetry(self, params: dict[str, Any]) -> Any:
        return await telemetry_control.answer(self._controller, params)

    async def _config(self, _params: dict[str, Any]) -> Any:
        return {"yaml": configuration.dump(self._controller.config)}

    async def _clear(self, params: dict[str, Any]) -> Any:
        """Clear the watermarks (default) or the counters of some ports."""
        what = params.get("what", "watermarks")
        if what not in ("watermarks", "counters"):
            raise RequestError(f"what: {what!r}: watermarks or counters is wanted")
        program = self._controller.program
        counters = list(program.counters) if what == "counters" else []
        registers = [name for name in program.registers if name.endswith("watermark")] if what == "watermarks" else []
        of_pools = [name for name in registers if name.endswith("pool_watermark")]
        of_ports = [name for name in registers if name not in of_pools]
        chosen = edit.select(self._controller.config, _target(params))
        for switch, ports in chosen:
            await self._controller.clear_counters(switch, counters, ports, of_ports)
            if of_pools and len(ports) == len(self._controller.config.switches[switch].ports):
                await self._controller.clear_counters(switch, [], [0], of_pools)  # cells 0..7: one for each pool
        return {"cleared": what, "ports": sum(len(ports) for _, ports in chosen)}

    async def _set(self, params: dict[str, Any]) -> Any:
        what, target = _text(params, "what"), _text(params, "target")
        async with self._lock:
            now = self._controller.config
            if what == "pfc":
                new = edit.set_pfc(now, target, _text(params, "state"), _text(params, "priorities"))
            elif what == "ets":
                new = edit.set_ets(now, target, _text(params, "spec"))
            elif what == "ecn":
                queue, values = params.get("queue"), params.get("values")
                if not isinstance(queue, int) or not isinstance(values, dict):
                    raise RequestError("queue, values: a number and an object are wanted")
                new = edit.set_ecn(now, target, queue, {str(key): str(value) for key, value in values.items()})
            elif what == "buffer":
                queue, values = params.get("pg"), params.get("values")
                if not isinstance(queue, int) or not isinstance(values, dict):
                    raise RequestError("pg, values: a number and an object are wanted")
                texts = {str(key): str(value) for key, value in values.items()}
                new = buffer_edit.set_buffer(now, target, queue, texts)
            elif what == "pool":
                pool, size, headroom = params.get("pool"), params.get("size"), params.get("headroom", False)
                if not isinstance(pool, int) or not isinstance(size, int) or not isinstance(headroom, bool):
                    raise RequestError("pool, size, headroom: two numbers and a boolean are wanted")
                new = buffer_edit.set_pool(now, target, pool, size, headroom=headroom)
            elif what == "trust":
                new = edit.set_trust(now, target, _text(params, "value"))
            elif what == "rate":
                new = edit.set_rate(now, target, _text(params, "value"))
            elif what == "dcbx":
                new = dcbx_control.edit(now, params)
            else:
                raise RequestError(f"what: {what!r}: one of pfc, ets, ecn, buffer, pool, trust, rate, dcbx is wanted")
            return await self._take_and_save(new, params)

    async def _take_and_save(self, new: Config, params: dict[str, Any]) -> dict[str, Any]:
        if params.get("save") and self._config_path is None:
            raise RequestError("save: the controller was not started from a file")
        result = await self._take(new)
        if params.get("save"):
            assert self._config_path is not None
            configuration.save(new, self._config_path)
        return result | {"saved": bool(params.get("save"))}

    async def _pfcwd(self, params: dict[str, Any]) -> Any:
        if params.get("what") not in watchdog_control.EDITS:
            return await watchdog_control.answer(self._controller, params | {"target": _target(params)})
        async with self._lock:
            new, notes = watchdog_control.edit(self._controller.config, self._controller.running, params)
            result = await self._take_and_save(new, params)
            await self._controller.watchdog.wait_applied(_SETTLE_SECONDS)
            return result | {"notes": notes}

    async def _reload(self, _params: dict[str, Any]) -> Any:
        return await self.reload()

    async def reload(self) -> dict[str, Any]:
        """Read the config file again and apply the difference. Raises ConfigError and changes nothing on a bad one."""
        async with self._lock:
            if self._config_path is None:
                raise RequestError("reload: the controller was not started from a file")
            return await self._take(configuration.load(self._config_path))

    async def _take(self, new: Config) -> dict[str, Any]:
        """Apply a config; tell how many updates each switch took, which could not be reached, and new warnings."""
        before = {item.name: item.updates_written for item in self._controller.status()}
        known = configuration.warnings(self._controller.config)
        await self._controller.apply(new)
        sessions = [self._controller.session(name) for name in new.switches]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                for session in sessions:
                    await session.wait_settled()
        switches = {}
        for session in sessions:
            status = session.status
            switches[status.name] = {
                "state": "synced" if session.synced else status.state.value,
                "updates": status.updates_written - before.get(status.name, 0),
                "error": status.last_error,
            }
        refused = [f"{name}: {s['error']}" for name, s in switches.items() if s["state"] == SwitchState.FAILED.value]
        return {
            "switches": switches,
            "refused": refused,
            "warnings": [w for w in configuration.warnings(new) if w not in known],
        }


async def serve(
    config_path: str | os.PathLike[str],
    *,
    lab: str = "lab",
    p4_directory: str | os.PathLike[str] | None = None,
    election_id: int = 100,
) -> None:
    """Run a controller with its control socket until SIGTERM or SIGINT; SIGHUP reloads the config.

    Prints one line, `synced: N switches hold FILE`, when that is so for the first time.
    Raises ConfigError, ProgramError, OSError before anything runs.
    """
    loaded = configuration.load(config_path)
    for warning in configuration.warnings(loaded):
        LOGGER.warning("%s: %s", config_path, warning)
    program = P4Program.load(p4_directory)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with (
        Controller(loaded, p4=program, election_id=election_id) as controller,
        ControlServer(controller, control_socket(lab), config_path) as server,
    ):
        reloads: set[asyncio.Task[None]] = set()

        async def announce() -> None:
            await controller.wait_synced()
            with contextlib.suppress(OSError):  # for launchers; nobody may read it any more
                print(f"synced: {len(loaded.switches)} switches hold {config_path}", flush=True)

        announcement = loop.create_task(announce())

        async def hang_up() -> None:
            try:
                result = await server.reload()
                LOGGER.info("reloaded %s: %s", config_path, result["switches"])
            except (ConfigError, ProgramError) as error:
                for line in str(error).splitlines():
                    LOGGER.error("%s", line)
                LOGGER.error("%s refused: the config in force stays", config_path)

        def on_hang_up() -> None:
            task = loop.create_task(hang_up())
            reloads.add(task)
            task.add_done_callback(reloads.discard)

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, on_hang_up)
        LOGGER.info("controller of lab %s is up: %d switches, %s", lab, len(loaded.switches), control_socket(lab))
        try:
            await stop.wait()
        finally:
            announcement.cancel()
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)
