"""The key `threshold_policy` of a buffer profile: who moves the XOFF of a static group at run time. Model only.

`controller.thresholds` runs it; the arithmetic and the bounds are in `dcb.thresholds`. Times in milliseconds, bytes
without FCS.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from controller.values import Bytes, no_bool


def _number(low: float, high: float) -> Any:
    return Annotated[float, BeforeValidator(no_bool), Field(ge=low, le=high, allow_inf_nan=False)]


class ThresholdPolicy(BaseModel):
    """A predictive threshold: XOFF = baseline + predicted peak of the next `horizon_ms` x factor, within bounds.

    predictor: ewma (statistics), holt (statistics with a trend), lstm (needs PyTorch, `pip install dcblab[lstm]`). The
    baseline is the profile's `xoff` [also when the predictor fails]. min_xoff [the baseline's half], max_xoff [what the
    pool carries]: bounds of the XOFF; the planner's bound holds in any case. interval_ms: time between two samples.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    predictor: Literal["ewma", "holt", "lstm"] = "ewma"
    interval_ms: _number(1, 60_000) = 10.0  # type: ignore[valid-type]
    horizon_ms: _number(1, 60_000) = 10.0  # type: ignore[valid-type]
    factor: _number(0, 100) = 1.2  # type: ignore[valid-type]
    min_xoff: Bytes | None = None
    max_xoff: Bytes | None = None

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        if self.min_xoff is not None and self.max_xoff is not None and self.min_xoff > self.max_xoff:
            raise ValueError(f"min_xoff {self.min_xoff} must not be above max_xoff {self.max_xoff}")
        return self
