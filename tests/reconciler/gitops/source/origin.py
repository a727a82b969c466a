"""The Git repositories that tests fetch policy from are those of the hostile corpus."""

from __future__ import annotations

from hack.hostile.origin import INVALID, QUEUE, Origin

__all__ = ["INVALID", "QUEUE", "Origin"]
