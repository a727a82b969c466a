"""Decides, and touches nothing: a frozen snapshot and a frozen policy go in, a plan that is data comes out.

The front door: `solve` decides one round, `check` judges any plan, `Replay` holds rounds over a trace. What they take and
give is in `solver.model`, `solver.policy` and `solver.plan`. All rooms, from the roof to the ground, stand in pyproject.toml.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solver.checker.check import violations as check
    from solver.round.solve import solve
    from solver.simulation.replay import Replay

__all__ = ["Replay", "check", "solve"]

_WHERE = {
    "check": ("solver.checker.check", "violations"),
    "Replay": ("solver.simulation.replay", "Replay"),
    "solve": ("solver.round.solve", "solve"),
}


def __getattr__(name: str) -> Any:
    """Loaded when they are asked for: a command that only reads a quantity needs no solver of integer programs."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)
