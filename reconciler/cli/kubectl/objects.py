"""Pods, Events and queues with what people read in them."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.kubernetes.objects.wire import Meta, Pod, PodStatus, Wire


class PodCondition(Wire, frozen=True):
    """A condition of a pod, with what it says."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class SeenStatus(PodStatus, frozen=True):
    """How a pod stands, in its own words."""

    conditions: tuple[PodCondition, ...] = ()  # type: ignore[assignment, unused-ignore]


class SeenPod(Pod, frozen=True):
    """A pod with its conditions."""

    status: SeenStatus = SeenStatus()

    @property
    def scheduling(self) -> PodCondition | None:
        """What its condition PodScheduled says; None: nothing yet."""
        return next((one for one in self.status.conditions if one.type == "PodScheduled"), None)


class Repeated(Wire, frozen=True):
    """How often an Event came."""

    count: int = 1
    last_observed_time: str | None = None


class SeenEvent(Wire, frozen=True):
    """An Event."""

    event_time: str | None = None
    reason: str = ""
    note: str = ""
    type: str = "Normal"
    reporting_controller: str = ""
    series: Repeated | None = None

    @property
    def last(self) -> str | None:
        """When it came last."""
        return (self.series and self.series.last_observed_time) or self.event_time


class SeenQueue(Wire, frozen=True):
    """An object of queues.quorate.dev."""

    metadata: Meta
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class ListMeta(Wire, frozen=True):
    """Where a list goes on."""

    next_page: str = msgspec.field(default="", name="continue")


class SeenPods(Wire, frozen=True):
    """One page of them."""

    items: tuple[SeenPod, ...]
    metadata: ListMeta = ListMeta()


class SeenEvents(Wire, frozen=True):
    """All that there are of an object."""

    items: tuple[SeenEvent, ...]


class SeenQueues(Wire, frozen=True):
    """All of them."""

    items: tuple[SeenQueue, ...]
