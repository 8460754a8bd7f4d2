"""The key `deadlock_detection` of the config file: look for rings of queues that stand still, and how often."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from controller.values import no_bool


class DeadlockDetection(BaseModel):
    """The key `deadlock_detection`. interval_ms: between two looks; a ring must stand still for one of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    interval_ms: Annotated[int, BeforeValidator(no_bool), Field(ge=10, le=60_000)] = 200
