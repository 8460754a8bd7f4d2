"""Client arbitration, sans-IO: who is primary for which role, and who has to be told.

One `Arbiter` serves one device. A client is any hashable name of a stream. `update` and `disconnect` return the
notifications to send, in order; a rejected update raises `P4RuntimeError`, which ends the client's stream.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from switch.p4rt.errors import Code, P4RuntimeError, invalid, not_found


@dataclass(frozen=True, slots=True)
class Notification:
    """A MasterArbitrationUpdate for `client`. `election_id` is the highest ever seen for the role (None: none seen)."""

    client: Hashable
    role: str
    role_config: bytes | None
    election_id: int | None
    code: Code
    message: str


@dataclass(slots=True)
class _Role:
    """Clients and their election ids (None: unset, never primary) in order of arrival."""

    name: str
    clients: dict[Hashable, int | None] = field(default_factory=dict)
    highest: int | None = None
    primary: Hashable | None = None
    config: bytes | None = None


class Arbiter:
    """Arbitration of one device. Election ids are integers of 128 bits."""

    def __init__(self, device_id: int, *, max_streams_per_role: int = 64) -> None:
        self.device_id = device_id
        self._max_streams = max_streams_per_role
        self._roles: dict[str, _Role] = {}
        self._role_of: dict[Hashable, _Role] = {}

    def update(
        self,
        client: Hashable,
        device_id: int,
        role_name: str,
        election_id: int | None,
        role_config: bytes | None = None,
    ) -> list[Notification]:
        """Handle a MasterArbitrationUpdate. Raises P4RuntimeError when the client's stream must end."""
        role = self._role_of.get(client)
        if role is None:
            role = self._admit(device_id, role_name, election_id)
        else:
            if device_id != self.device_id:
                raise _precondition(f"device_id {device_id}: this stream belongs to device {self.device_id}")
            if role_name != role.name:
                raise _precondition(f"role {role_name!r}: this stream belongs to role {role.name!r}; open a new one")
            self._check_unique(role, election_id, client)
        self._role_of[client] = role
        self._roles[role.name] = role
        role.clients[client] = election_id
        return self._elect(role, client, election_id, role_config)

    def _admit(self, device_id: int, role_name: str, election_id: int | None) -> _Role:
        if device_id != self.device_id:
            raise not_found(f"device_id {device_id}: this switch is device {self.device_id}")
        role = self._roles.get(role_name) or _Role(role_name)
        self._check_unique(role, election_id, None)
        if len(role.clients) >= self._max_streams:
            raise P4RuntimeError(
                Code.RESOURCE_EXHAUSTED, f"role {role_name!r}: at most {self._max_streams} streams may be open"
            )
        return role

    def _check_unique(self, role: _Role, election_id: int | None, client: Hashable | None) -> None:
        if election_id is None:
            return
        for other, taken in role.clients.items():
            if taken == election_id and other != client:
                # finsy looks for "election id ... used" to try the next one
                raise invalid(f"election id {election_id} is already used by another live client of role {role.name!r}")

    def _elect(
        self, role: _Role, client: Hashable, election_id: int | None, role_config: bytes | None
    ) -> list[Notification]:
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            role.highest = election_id
            role.primary = client
            role.config = role_config
            # The specification has the others told before the new primary may write.
            return self._notify(role, [c for c in role.clients if c != client] + [client])
        if role.primary == client:
            role.primary = None
            return self._notify(role, list(role.clients))
        return self._notify(role, [client])

    def disconnect(self, client: Hashable) -> list[Notification]:
        """The client's stream ended, for whatever reason."""
        role = self._role_of.pop(client, None)
        if role is None:
            return []
        del role.clients[client]
        if role.primary != client:
            return []
        role.primary = None
        return self._notify(role, list(role.clients))

    def _notify(self, role: _Role, clients: list[Hashable]) -> list[Notification]:
        return [self._notification(role, client) for client in clients]

    def _notification(self, role: _Role, client: Hashable) -> Notification:
        if client == role.primary:
            code, message = Code.OK, "you are the primary"
        elif role.primary is not None:
            code, message = Code.ALREADY_EXISTS, "you are a backup: there is a primary"
        else:
            code, message = Code.NOT_FOUND, "you are a backup: there is no primary"
        return Notification(client, role.name, role.config, role.highest, code, message)

    def check_primary(self, device_id: int, role_name: str, election_id: int | None) -> None:
        """Raise unless a request with these values comes from the primary of that role."""
        if device_id != self.device_id:
            raise not_found(f"device_id {device_id}: this switch is device {self.device_id}")
        role = self._roles.get(role_name)
        if role is None:
            if role_name:
                raise not_found(f"role {role_name!r}: no client has ever opened a stream for it")
            raise _denied("no client has opened a stream and sent a MasterArbitrationUpdate")
        if role.primary is None:
            raise _denied(f"role {role_name!r} has no primary at the moment")
        if election_id is None or role.clients[role.primary] != election_id:
            raise _denied(
                f"election_id {'unset' if election_id is None else election_id}: "
                f"the primary of role {role_name!r} has election_id {role.highest}"
            )

    def is_primary(self, client: Hashable) -> bool:
        """The client is the primary of its role."""
        role = self._role_of.get(client)
        return role is not None and role.primary == client

    def role_of(self, client: Hashable) -> str | None:
        """The role that the client arbitrates for; None before its first update."""
        role = self._role_of.get(client)
        return None if role is None else role.name

    def primaries(self) -> Iterator[Hashable]:
        """The primary of each role that has one."""
        for role in self._roles.values():
            if role.primary is not None:
                yield role.primary

    def config_of(self, role_name: str) -> bytes | None:
        """The configuration that the last primary of a role gave."""
        role = self._roles.get(role_name)
        return role.config if role else None


def _precondition(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.FAILED_PRECONDITION, message)


def _denied(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.PERMISSION_DENIED, message)
