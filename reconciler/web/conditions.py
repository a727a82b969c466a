"""The conditions of the control plane and of webhooks, and which of them are as they should be."""

from __future__ import annotations

from typing import Final

from reconciler.api.alert_views import ALERTED, alert_conditions
from reconciler.api.payloads import LEADING, Condition
from reconciler.api.services import Services

_GOOD: Final = frozenset({"Ready", LEADING, ALERTED})
"""Conditions that are as they should be where they hold; all others where they don't."""


def conditions_of(services: Services) -> tuple[Condition, ...]:
    """All of them."""
    return (*services.status().conditions, *alert_conditions(services.alerts.standings().values()))


def is_in_order(condition: Condition) -> bool:
    """Whether all is as it should be by this one. One that says nothing more is about another server that leads, or nothing yet."""
    return condition.status == (condition.type in _GOOD) or not (condition.message or condition.reason)
