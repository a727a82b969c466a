"""How close tasks have to be, and had best be."""

from __future__ import annotations

from typing import NamedTuple

from solver.model.cluster import Level


class Kept(NamedTuple):
    """The level of which tasks have to be in one domain, and the closer ones of which they had best be."""

    required: Level | None = None
    preferred: tuple[Level, ...] = ()
