"""The P4Runtime service without gRPC: requests as text, outcomes as (code, message); for tests of meaning."""

from __future__ import annotations

import pytest
from finsy.proto import p4r
from google.protobuf import text_format
from p4rt_client import DEVICE_ID, EVERYTHING_JSON, EVERYTHING_P4INFO, Names, config
from p4rt_fakes import FakeCore, FakePipeline, FakeTargetFactory

from switch.p4rt.errors import P4RuntimeError
from switch.p4rt.service import BatchError, Service

OK = ("OK", "")


class Direct:
    """A service with a committed program and one primary, "me"."""

    def __init__(self, json_path=EVERYTHING_JSON, info_path=EVERYTHING_P4INFO, interfaces=None, factory=None) -> None:
        self.factory = factory or FakeTargetFactory(interfaces)
        self.service = Service(DEVICE_ID, self.factory)
        self.arbitrate("me", 1)
        message = config(json_path, info_path)
        self.names = Names(message.p4info)
        self.set_config(message)
        self.role = ""

    # --- set-up ---

    def arbitrate(self, client: str, election_id: int, role: str = "", role_config=None) -> list[object]:
        update = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id=p4r.Uint128(low=election_id))
        if role:
            update.role.name = role
            if role_config is not None:
                update.role.config.Pack(role_config)
        return self.service.stream_message(client, p4r.StreamMessageRequest(arbitration=update))

    def set_config(self, message, action: str = "VERIFY_AND_COMMIT") -> None:
        kind = p4r.SetForwardingPipelineConfigRequest.Action.Value(action)
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE_ID, election_id=p4r.Uint128(low=1), action=kind, config=message
        )
        change = self.service.prepare(request)
        change.build()
        self.service.finish(change)

    @property
    def core(self) -> FakeCore:
        return self.factory.core

    @property
    def pipeline(self) -> FakePipeline:
        return self.core.pipeline

    # --- requests ---

    def entity(self, text: str, **values: int) -> p4r.Entity:
        """An Entity from text format; `@name` stands for the P4Info id of that object."""
        while "@" in text:
            start = text.index("@")
            end = start + 1
            while end < len(text) and (text[end].isalnum() or text[end] in "_."):
                end += 1
            text = text[:start] + str(self.names[text[start + 1 : end]]) + text[end:]
        return text_format.Parse(text, p4r.Entity())

    def write(self, *updates: tuple[str, str], atomicity: str = "CONTINUE_ON_ERROR") -> list[tuple[str, str]]:
        """Outcome of each (type, entity text)."""
        request = p4r.WriteRequest(
            device_id=DEVICE_ID,
            election_id=p4r.Uint128(low=1),
            role=self.role,
            atomicity=p4r.WriteRequest.Atomicity.Value(atomicity),
            updates=[p4r.Update(type=p4r.Update.Type.Value(k), entity=self.entity(text)) for k, text in updates],
        )
        try:
            self.service.write(request)
        except BatchError as error:
            return [OK if outcome is None else (outcome.code.name, outcome.message) for outcome in error.outcomes]
        return [OK] * len(updates)

    def insert(self, text: str) -> tuple[str, str]:
        return self.write(("INSERT", text))[0]

    def modify(self, text: str) -> tuple[str, str]:
        return self.write(("MODIFY", text))[0]

    def delete(self, text: str) -> tuple[str, str]:
        return self.write(("DELETE", text))[0]

    def read(self, *texts: str, role: str = "") -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=[self.entity(text) for text in texts], role=role)
        return [entity for response in self.service.read(request) for entity in response.entities]

    def read_error(self, text: str) -> tuple[str, str]:
        with pytest.raises(P4RuntimeError) as caught:
            self.read(text)
        error = caught.value
        if isinstance(error, BatchError):
            (outcome,) = error.outcomes
            assert outcome is not None
            return outcome.code.name, outcome.message
        return error.code.name, error.message

    def whole_state(self) -> list[str]:
        """Everything that can be read, for "nothing changed"."""
        queries = [
            "table_entry { counter_data {} meter_config {} }",
            "table_entry { is_default_action: true }",
            "action_profile_member {}",
            "action_profile_group {}",
            "counter_entry {}",
            "meter_entry {}",
            "register_entry {}",
            "packet_replication_engine_entry { multicast_group_entry {} }",
            "packet_replication_engine_entry { clone_session_entry {} }",
            "value_set_entry {}",
            "digest_entry {}",
        ]
        return sorted(str(entity) for entity in self.read(*queries))
