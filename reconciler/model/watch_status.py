"""How far a control plane follows what it does not keep itself: kind by kind of an API server's objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from solver.model.document import Document
from solver.model.quantities import Instant

BEHIND_S: Final = 180.0
"""A server that is heard says something of each kind about every minute, be it that nothing has changed."""


class FollowedKind(Document, frozen=True):
    """`objects` of a `kind`, in the `version` that the server has. `is_needed`: without it nothing is decided.

    `listed_at`: when all of it was read last, and `silent_s`: for how long the server has said nothing of it (null: never).
    `breaks`: how often the watch had to be taken up again. `is_absent`: the server does not have it, which is no `problem`.
    """

    kind: str
    version: str
    is_needed: bool
    objects: int
    listed_at: Instant | None = None
    silent_s: float | None = None
    breaks: int = 0
    is_absent: bool = False
    problem: str = ""

    @property
    def is_behind(self) -> bool:
        """What is known of it may be old. Of what is not needed, and may not be read, nothing is known."""
        if self.is_absent or (self.problem and not self.is_needed):
            return False
        return bool(self.problem) or (self.silent_s is not None and self.silent_s > BEHIND_S)

    @property
    def state(self) -> str:
        """In words."""
        if self.is_behind:
            heard = "" if self.silent_s is None else f": nothing heard for {self.silent_s:.0f} s"
            return f"behind{heard}{f'; {self.problem}' if self.problem else ''}"
        if self.problem:
            return f"not followed: {self.problem}"
        return "being read" if self.listed_at is None else "followed"


def behind(kinds: Iterable[FollowedKind]) -> Iterator[FollowedKind]:
    """Those of which what is known may be old."""
    return (kind for kind in kinds if kind.is_behind)


class WatchStatus(Protocol):
    """A follower of kinds of objects. Any thread may ask."""

    def followed(self) -> tuple[FollowedKind, ...]:
        """How far each kind is followed; none before it has begun."""


@dataclass(frozen=True, slots=True)
class FollowedFigures(Collector):
    """Figures for Prometheus, read at the moment of the scrape; kinds that the server does not have are left out."""

    of: WatchStatus

    def collect(self) -> Iterator[Metric]:
        """By kind."""
        objects = GaugeMetricFamily("quorate_followed_objects", "Objects that are known, by kind.", labels=["kind"])
        silent = GaugeMetricFamily(
            "quorate_followed_silent_seconds",
            "For how long the API server has said nothing of a kind.",
            labels=["kind"],
        )
        breaks = CounterMetricFamily(
            "quorate_followed_breaks", "How often the watch of a kind had to be taken up again.", labels=["kind"]
        )
        late = GaugeMetricFamily(
            "quorate_followed_behind", "1 where what is known of a kind may be old.", labels=["kind"]
        )
        for kind in self.of.followed():
            if kind.is_absent:
                continue
            objects.add_metric([kind.kind], kind.objects)
            breaks.add_metric([kind.kind], kind.breaks)
            late.add_metric([kind.kind], kind.is_behind)
            if kind.silent_s is not None:
                silent.add_metric([kind.kind], kind.silent_s)
        yield from (objects, silent, breaks, late)
