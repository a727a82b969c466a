"""What is out of order with a control plane, as its pages say it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reconciler.api.alert_views import alert_conditions
from reconciler.api.payloads import LEADING, Condition
from reconciler.api.services import Services

_GOOD: Final = frozenset({"Ready", LEADING})
"""Conditions that are as they should be where they hold; all others where they don't."""


def conditions_of(services: Services) -> tuple[Condition, ...]:
    """All that is said of it, webhooks among it. Reads the store; raises what that does."""
    return (*services.status().conditions, *alert_conditions(services.alerts.standings().values()))


def troubles(conditions: Iterable[Condition]) -> list[Condition]:
    """Those that are not as they should be."""
    return [each for each in conditions if each.status != (each.type in _GOOD) and (each.message or each.reason)]
