"""Buffer planning of a switch: pools, headroom pools and the thresholds of its lossless groups. Sans-IO, exact."""

from dcb.buffers.alpha import parse_alpha as parse_alpha
from dcb.buffers.plan import BufferPlan as BufferPlan
from dcb.buffers.plan import PlanError as PlanError
from dcb.buffers.plan import PortSpec as PortSpec
from dcb.buffers.plan import Thresholds as Thresholds
from dcb.buffers.plan import plan_buffers as plan_buffers
