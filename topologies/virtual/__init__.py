"""Scenarios in virtual time: a topology as a running fabric with its controller (`lab`), and the bench that runs them.

`topologies.scenario` says what a scenario is, docs/virtual.md how to write one.
"""

from topologies.virtual.bench import Bench as Bench
from topologies.virtual.lab import Flow as Flow
from topologies.virtual.lab import LabSettings as LabSettings
from topologies.virtual.lab import VirtualLab as VirtualLab
from topologies.virtual.plan import planned as planned
