"""Which events are worth telling a user who does not look: their names in policy, and how each is known."""

from __future__ import annotations

from typing import Final, Literal

from reconciler.protocols.history import Event

AlertKind = Literal[
    "started", "evicted", "eviction-called-off", "suspended", "retried", "stuck", "idle", "time-limit-near", "checkpoint-corrupt",
    "succeeded", "failed", "cancelled", "policy-rejected", "budget", "capacity", "forecast-missed", "guarantee-not-met-for",
    "finish-by-at-risk", "node-suspect", "node-cordoned", "node-drained", "node-well",
]  # fmt: skip

ABOUT_POLICY: Final[frozenset[AlertKind]] = frozenset({"policy-rejected"})
ABOUT_NODES: Final[frozenset[AlertKind]] = frozenset({"node-suspect", "node-cordoned", "node-drained", "node-well"})
ABOUT_BUDGETS: Final[frozenset[AlertKind]] = frozenset({"budget"})
ABOUT_CAPACITY: Final[frozenset[AlertKind]] = frozenset({"capacity"})
ABOUT_NO_JOB: Final = ABOUT_POLICY | ABOUT_NODES | ABOUT_BUDGETS | ABOUT_CAPACITY
"""Their subjects are revisions, nodes, budgets and what is short; that of all others is a job."""
ABOUT_WAITS: Final[tuple[AlertKind, ...]] = (
    "capacity",
    "forecast-missed",
    "guarantee-not-met-for",
    "finish-by-at-risk",
)
"""What is told once it is so for as long as a policy says; the last at once."""

_OF_EVENT: Final[dict[str, AlertKind]] = {
    "running": "started",
    "called-off": "eviction-called-off",
    "retried": "retried",
    "stuck": "stuck",
    "idle": "idle",
    "lent": "idle",
    "time-limit-near": "time-limit-near",
    "checkpoint-corrupt": "checkpoint-corrupt",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "policy-refused": "policy-rejected",
    "budget": "budget",
    "capacity": "capacity",
    "forecast-missed": "forecast-missed",
    "guarantee-not-met-for": "guarantee-not-met-for",
    "finish-by-at-risk": "finish-by-at-risk",
    "node-suspect": "node-suspect",
    "node-cordoned": "node-cordoned",
    "node-drained": "node-drained",
    "node-well": "node-well",
}

_SUSPENDING: Final = frozenset({"suspend-asked", "released"})
"""A job that waits is suspended when a user says so, one that runs when it has given back what it held."""


def kind_of(event: Event) -> AlertKind | None:
    """What an event is to the webhooks that it is sent to; None: it is sent to none."""
    if event.kind == "asked-to-stop":
        return "evicted" if event.purpose == "evict" else None
    if event.kind in _SUSPENDING:
        return "suspended" if event.state == "suspended" else None
    return _OF_EVENT.get(event.kind)
