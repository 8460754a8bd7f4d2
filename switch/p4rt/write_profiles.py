"""Writes to action profiles and selectors: members, groups, one-shot action sets, watch ports.

A one-shot set becomes hidden members and one hidden group in the pipeline. The specification keeps profiles pure:
one-shots only, or members and groups only; so hidden ids cannot meet a client's ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from finsy.proto import p4r

from switch.api import ActionCall, GroupRef, MemberRef
from switch.p4rt import codec
from switch.p4rt.control import TargetControl
from switch.p4rt.errors import Code, P4RuntimeError, invalid, not_found, target_errors, unimplemented
from switch.p4rt.journal import Journal
from switch.p4rt.schema import ActionProfile, Schema, Table
from switch.p4rt.store import ActionSet, Group, GroupMember, Member, OneShotAction, Profile, Store, StoredAction, Watch


class ProfileWriter:
    """Members and groups. Groups in the pipeline hold only members whose watched port is up."""

    def __init__(self, schema: Schema, store: Store, target: TargetControl) -> None:
        self._schema = schema
        self._store = store
        self._target = target

    # --- ActionProfileMember ---

    def insert_member(self, message: p4r.ActionProfileMember, journal: Journal) -> None:
        profile, state = self._explicit(message.action_profile_id)
        member = Member(_nonzero(profile, "member_id", message.member_id), self._member_action(profile, message))
        if member.member_id in state.members:
            raise _exists(f"action profile {profile.name}: member_id {member.member_id} exists")
        if profile.size and len(state.members) >= profile.size:
            raise _exhausted(f"action profile {profile.name}: it is full (size {profile.size} members)")
        self._set_member(profile, member)
        journal.done(lambda: self._drop_member(profile, member.member_id))

    def modify_member(self, message: p4r.ActionProfileMember, journal: Journal) -> None:
        profile, state = self._explicit(message.action_profile_id)
        old = self._member(profile, state, message.member_id)
        self._set_member(profile, Member(old.member_id, self._member_action(profile, message)))
        journal.done(lambda: self._set_member(profile, old))

    def delete_member(self, message: p4r.ActionProfileMember, journal: Journal) -> None:
        profile, state = self._explicit(message.action_profile_id)
        old = self._member(profile, state, message.member_id)
        if state.member_refs[old.member_id] > 0:
            raise _in_use(
                f"action profile {profile.name}: member_id {old.member_id} is used by a group or a table entry"
            )
        self._drop_member(profile, old.member_id)
        journal.done(lambda: self._set_member(profile, old))

    def _member_action(self, profile: ActionProfile, message: p4r.ActionProfileMember) -> ActionCall:
        if not message.HasField("action"):
            raise invalid(f"action profile {profile.name}: member_id {message.member_id}: action is missing")
        return codec.decode_action(self._schema.table(profile.table_ids[0]), message.action)

    def _member(self, profile: ActionProfile, state: Profile, member_id: int) -> Member:
        found = state.members.get(_nonzero(profile, "member_id", member_id))
        if found is None:
            raise not_found(f"action profile {profile.name}: no member with member_id {member_id}")
        return found

    def _set_member(self, profile: ActionProfile, member: Member) -> None:
        with target_errors(f"action profile {profile.name}: member_id {member.member_id}"):
            self._target.member_set(profile.name, member.member_id, member.action)
        self._store.profiles[profile.id].members[member.member_id] = member

    def _drop_member(self, profile: ActionProfile, member_id: int) -> None:
        with target_errors(f"action profile {profile.name}: member_id {member_id}"):
            self._target.member_delete(profile.name, member_id)
        del self._store.profiles[profile.id].members[member_id]

    # --- ActionProfileGroup ---

    def insert_group(self, message: p4r.ActionProfileGroup, journal: Journal) -> None:
        profile, state = self._explicit(message.action_profile_id, groups=True)
        group_id = _nonzero(profile, "group_id", message.group_id)
        if group_id in state.groups:
            raise _exists(f"action profile {profile.name}: group_id {group_id} exists")
        group = self._decode_group(profile, state, message)
        self._set_group(profile, group)
        journal.done(lambda: self._drop_group(profile, group_id))

    def modify_group(self, message: p4r.ActionProfileGroup, journal: Journal) -> None:
        profile, state = self._explicit(message.action_profile_id, groups=True)
        old = self._group(profile, state, message.group_id)
        group = self._decode_group(profile, state, message)
        if group.max_size != old.max_size:
            raise invalid(
                f"action profile {profile.name}: group_id {old.group_id}: max_size {group.max_size}: "
                f"must stay what it was at INSERT ({old.max_size})"
            )
        self._set_group(profile, group)
        journal.done(lambda: self._set_group(profile, old))

    def delete_group(self, message: p4r.ActionProfileGroup, journal: Journal) -> None:
        profile, state = self._explicit(message.action_profile_id, groups=True)
        old = self._group(profile, state, message.group_id)
        if state.group_refs[old.group_id] > 0:
            raise _in_use(f"action profile {profile.name}: group_id {old.group_id} is used by a table entry")
        self._drop_group(profile, old.group_id)
        journal.done(lambda: self._set_group(profile, old))

    def _group(self, profile: ActionProfile, state: Profile, group_id: int) -> Group:
        found = state.groups.get(_nonzero(profile, "group_id", group_id))
        if found is None:
            raise not_found(f"action profile {profile.name}: no group with group_id {group_id}")
        return found

    def _decode_group(self, profile: ActionProfile, state: Profile, message: p4r.ActionProfileGroup) -> Group:
        what = f"action profile {profile.name}: group_id {message.group_id}"
        limit = profile.max_group_size
        if message.max_size < 0 or (limit and not 0 < message.max_size <= limit):
            allowed = f"1..{limit}" if limit else "0 or more"
            raise invalid(f"{what}: max_size {message.max_size}: must be {allowed}")
        members: list[GroupMember] = []
        seen: set[int] = set()
        for given in message.members:
            if given.member_id not in state.members:
                raise not_found(f"{what}: no member with member_id {given.member_id}")
            if given.member_id in seen:
                raise invalid(f"{what}: member_id {given.member_id} is given twice; use weight")
            seen.add(given.member_id)
            member_what = f"{what}: member_id {given.member_id}"
            _check_weight(profile, given.weight, member_what)
            members.append(GroupMember(given.member_id, given.weight, self._decode_watch(given, member_what)))
        size = _size(profile, [member.weight for member in members])
        if message.max_size and size > message.max_size:
            raise _exhausted(f"{what}: {_size_unit(profile)} {size} exceeds max_size {message.max_size}")
        self._check_room(profile, state, size, message.group_id, what)
        return Group(message.group_id, message.max_size, tuple(members))

    def _check_room(self, profile: ActionProfile, state: Profile, size: int, replaced: int, what: str) -> None:
        """P4Info's size of a selector limits all groups together; group `replaced` (0: none) makes room."""
        if not profile.size:
            return
        groups = [(group_id, [m.weight for m in group.members]) for group_id, group in state.groups.items()]
        groups += [(group_id, [a.weight for a in one.actions]) for group_id, one in state.one_shots.items()]
        used = sum(_size(profile, weights) for group_id, weights in groups if group_id != replaced)
        if used + size > profile.size:
            unit = _size_unit(profile)
            raise _exhausted(f"{what}: {unit} {size} and {used} of the other groups exceed size {profile.size}")

    def _decode_watch(self, given: p4r.ActionProfileGroup.Member | p4r.ActionProfileAction, what: str) -> Watch | None:
        kind = given.WhichOneof("watch_kind")
        if kind is None or (kind == "watch_port" and not given.watch_port):
            return None
        if kind == "watch_port":
            watch = Watch(codec.decode_port(given.watch_port, f"{what}: watch_port"))
        elif given.watch == 0:
            return None  # the deprecated field's way to say: no port
        else:
            watch = Watch(given.watch, deprecated_field=True)
        if not self._target.port_exists(watch.port):
            raise invalid(f"{what}: watch_port {watch.port}: the switch has no such port")
        return watch

    def _set_group(self, profile: ActionProfile, group: Group) -> None:
        self._pipeline_group(profile, group.group_id, [(m.member_id, m.weight, m.watch) for m in group.members])
        self._store.put_group(profile.id, group)

    def _drop_group(self, profile: ActionProfile, group_id: int) -> None:
        with target_errors(f"action profile {profile.name}: group_id {group_id}"):
            self._target.group_delete(profile.name, group_id)
        self._store.drop_group(profile.id, group_id)

    def _pipeline_group(
        self, profile: ActionProfile, group_id: int, members: Sequence[tuple[int, int, Watch | None]]
    ) -> None:
        live = [
            (m, max(1, weight)) for m, weight, watch in members if watch is None or self._target.port_is_up(watch.port)
        ]
        with target_errors(f"action profile {profile.name}: group_id {group_id}"):
            self._target.group_set(profile.name, group_id, live)

    def port_changed(self, port: int) -> None:
        """A port went up or down: rewrite the groups that watch it."""
        for profile in self._schema.profiles.values():
            state = self._store.profiles[profile.id]
            for group in state.groups.values():
                if any(m.watch and m.watch.port == port for m in group.members):
                    self._pipeline_group(
                        profile, group.group_id, [(m.member_id, m.weight, m.watch) for m in group.members]
                    )
            for one_shot in state.one_shots.values():
                if any(a.watch and a.watch.port == port for a in one_shot.actions):
                    self._one_shot_group(profile, one_shot)

    # --- the action of a table entry ---

    def decode_table_action(
        self, table: Table, message: p4r.TableAction, replaced: StoredAction | None = None
    ) -> StoredAction:
        """The action of an entry, of the kind that its table takes, in place of the `replaced` one."""
        kind = message.WhichOneof("type")
        if not table.profile_id:
            if kind != "action":
                raise invalid(f"table {table.name}: it is direct: action.action must be set, not {kind or 'nothing'}")
            return codec.decode_action(table, message.action)
        profile = self._schema.profiles[table.profile_id]
        state = self._store.profiles[profile.id]
        if kind == "action_profile_member_id":
            self._refuse_one_shots(profile, state)
            return MemberRef(self._member(profile, state, message.action_profile_member_id).member_id)
        if kind == "action_profile_group_id":
            _need_selector(profile, f"table {table.name}: action_profile_group_id")
            self._refuse_one_shots(profile, state)
            return GroupRef(self._group(profile, state, message.action_profile_group_id).group_id)
        if kind == "action_profile_action_set":
            _need_selector(profile, f"table {table.name}: action_profile_action_set")
            old_group = replaced.group_id if isinstance(replaced, ActionSet) else 0
            return self._decode_one_shot(table, profile, state, message.action_profile_action_set, old_group)
        raise invalid(
            f"table {table.name}: its actions are in action profile {profile.name}: "
            f"a member, a group or an action set must be given, not {kind or 'nothing'}"
        )

    def _refuse_one_shots(self, profile: ActionProfile, state: Profile) -> None:
        if state.one_shots:
            raise invalid(
                f"action profile {profile.name}: it is programmed with one-shot action sets; "
                "members and groups cannot be mixed with them"
            )

    def _explicit(self, profile_id: int, *, groups: bool = False) -> tuple[ActionProfile, Profile]:
        profile = self._schema.profile(profile_id)
        if groups:
            _need_selector(profile, "ActionProfileGroup")
        if not profile.table_ids:
            raise invalid(f"action profile {profile.name}: no table uses it")
        state = self._store.profiles[profile.id]
        self._refuse_one_shots(profile, state)
        return profile, state

    # --- one-shot action sets ---

    def _decode_one_shot(
        self,
        table: Table,
        profile: ActionProfile,
        state: Profile,
        message: p4r.ActionProfileActionSet,
        old_group: int,
    ) -> ActionSet:
        what = f"table {table.name}: action_profile_action_set"
        if state.members or state.groups:
            raise invalid(
                f"{what}: action profile {profile.name} is programmed with members and groups; they cannot be mixed"
            )
        if message.action_selection_mode == p4r.ActionProfileActionSet.RANDOM:
            raise unimplemented(f"{what}: action_selection_mode RANDOM: a v1model selector hashes")
        members_semantics = p4r.ActionProfileActionSet.SUM_OF_MEMBERS
        if message.size_semantics and (message.size_semantics == members_semantics) != profile.sum_of_members:
            raise unimplemented(f"{what}: size_semantics cannot differ from those of action profile {profile.name}")
        actions: list[OneShotAction] = []
        for number, given in enumerate(message.action_profile_actions):
            action_what = f"{what}[{number}]"
            _check_weight(profile, given.weight, action_what)
            call = codec.decode_action(table, given.action)
            actions.append(OneShotAction(call, given.weight, self._decode_watch(given, action_what)))
        size = _size(profile, [action.weight for action in actions])
        if profile.max_group_size and size > profile.max_group_size:
            raise invalid(f"{what}: {_size_unit(profile)} {size} exceeds max_group_size {profile.max_group_size}")
        self._check_room(profile, state, size, old_group, what)
        return ActionSet(tuple(actions), message.action_selection_mode, message.size_semantics)

    def install_one_shot(self, table: Table, action_set: ActionSet, journal: Journal) -> ActionSet:
        """Put the set into the pipeline; returns it with its hidden ids."""
        profile = self._schema.profiles[table.profile_id]
        ids = self._store.profiles[profile.id].free_ids(1 + len(action_set.actions))
        installed = replace(action_set, group_id=ids[0], member_ids=tuple(ids[1:]))
        self._install(profile, installed, journal)
        return installed

    def _install(self, profile: ActionProfile, action_set: ActionSet, journal: Journal) -> None:
        for member_id, action in zip(action_set.member_ids, action_set.actions, strict=True):
            self._hidden_member(profile, member_id, action.call)
            journal.done(partial(self._target.member_delete, profile.name, member_id))
        self._one_shot_group(profile, action_set)
        state = self._store.profiles[profile.id]
        state.one_shots[action_set.group_id] = action_set

        def undo() -> None:
            self._target.group_delete(profile.name, action_set.group_id)
            del state.one_shots[action_set.group_id]

        journal.done(undo)

    def replace_one_shot(self, table: Table, old: ActionSet, new: ActionSet, journal: Journal) -> ActionSet:
        """Turn the set of an entry into another one; returns it with its hidden ids.

        Group and members are used again, so that a full profile can be changed. The caller holds the core: no packet
        sees the set half done.
        """
        profile = self._schema.profiles[table.profile_id]
        state = self._store.profiles[profile.id]
        kept = old.member_ids[: len(new.actions)]
        surplus = old.member_ids[len(new.actions) :]
        fresh = state.free_ids(len(new.actions) - len(kept))
        installed = replace(new, group_id=old.group_id, member_ids=(*kept, *fresh))
        old_calls = dict(zip(old.member_ids, (action.call for action in old.actions), strict=True))
        for member_id, action in zip(installed.member_ids, installed.actions, strict=True):
            self._hidden_member(profile, member_id, action.call)
            if member_id in old_calls:
                journal.done(partial(self._hidden_member, profile, member_id, old_calls[member_id]))
            else:
                journal.done(partial(self._target.member_delete, profile.name, member_id))
        self._one_shot_group(profile, installed)
        state.one_shots[old.group_id] = installed

        def undo() -> None:
            self._one_shot_group(profile, old)
            state.one_shots[old.group_id] = old

        journal.done(undo)
        for member_id in surplus:
            with target_errors(f"action profile {profile.name}"):
                self._target.member_delete(profile.name, member_id)
            journal.done(partial(self._hidden_member, profile, member_id, old_calls[member_id]))
        return installed

    def _hidden_member(self, profile: ActionProfile, member_id: int, call: ActionCall) -> None:
        with target_errors(f"action profile {profile.name}"):
            self._target.member_set(profile.name, member_id, call)

    def _one_shot_group(self, profile: ActionProfile, action_set: ActionSet) -> None:
        members = zip(action_set.member_ids, action_set.actions, strict=True)
        self._pipeline_group(profile, action_set.group_id, [(member_id, a.weight, a.watch) for member_id, a in members])

    def remove_one_shot(self, table: Table, action_set: ActionSet, journal: Journal) -> None:
        """Take a set that no entry uses any more out of the pipeline."""
        profile = self._schema.profiles[table.profile_id]
        state = self._store.profiles[profile.id]
        with target_errors(f"action profile {profile.name}"):
            self._target.group_delete(profile.name, action_set.group_id)
        del state.one_shots[action_set.group_id]

        def undo() -> None:
            self._one_shot_group(profile, action_set)
            state.one_shots[action_set.group_id] = action_set

        journal.done(undo)
        for member_id, action in zip(action_set.member_ids, action_set.actions, strict=True):
            with target_errors(f"action profile {profile.name}"):
                self._target.member_delete(profile.name, member_id)
            journal.done(partial(self._hidden_member, profile, member_id, action.call))


def _check_weight(profile: ActionProfile, weight: int, what: str) -> None:
    if profile.weights_disallowed:
        if weight:
            raise invalid(f"{what}: weight {weight}: must be 0, action profile {profile.name} has weights_disallowed")
        return
    if weight <= 0:
        raise invalid(f"{what}: weight {weight}: must be positive")
    if profile.sum_of_members and profile.max_member_weight and weight > profile.max_member_weight:
        raise invalid(f"{what}: weight {weight}: exceeds max_member_weight {profile.max_member_weight}")


def _size(profile: ActionProfile, weights: Sequence[int]) -> int:
    return len(weights) if profile.sum_of_members else sum(max(1, weight) for weight in weights)


def _size_unit(profile: ActionProfile) -> str:
    return "number of members" if profile.sum_of_members else "sum of weights"


def _need_selector(profile: ActionProfile, what: str) -> None:
    if not profile.selector:
        raise invalid(f"{what}: action profile {profile.name} has no selector, so it has no groups")


def _nonzero(profile: ActionProfile, field: str, value: int) -> int:
    if value == 0:
        raise invalid(f"action profile {profile.name}: {field} must not be 0")
    return value


def _exists(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.ALREADY_EXISTS, message)


def _exhausted(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.RESOURCE_EXHAUSTED, message)


def _in_use(message: str) -> P4RuntimeError:
    return P4RuntimeError(Code.FAILED_PRECONDITION, message)
