"""The scenarios, a module each: NAME, SUMMARY, and OPTIONS and run(bench) for virtual time (topologies.scenario).

Those that run in real time, on Mininet, are known by their TARGETS.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType


@cache
def scenarios() -> dict[str, ModuleType]:
    """Every scenario by its name, in order of names."""
    found = [importlib.import_module(f"{__name__}.{item.name}") for item in pkgutil.iter_modules(__path__)]
    named = {module.NAME: module for module in found if hasattr(module, "NAME")}
    return dict(sorted(named.items()))


def is_virtual(module: ModuleType) -> bool:
    """Whether it runs in virtual time."""
    return hasattr(module, "run") and hasattr(module, "OPTIONS")


def real_targets(module: ModuleType) -> tuple[str, ...]:
    """Targets that it runs on in real time."""
    return tuple(str(target) for target in getattr(module, "TARGETS", ()))
