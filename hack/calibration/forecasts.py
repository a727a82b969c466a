"""What jobs were told when they first had to wait, and when they began."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from hack.calibration.world import CrowdedCluster
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from solver.plan.estimates import EarliestStart
from solver.plan.plan import Waits
from solver.simulation.replay import Replay

CADENCE = Duration(600_000)
"""How often rounds are held at most: a start is in time up to that much later than was forecast."""

Basis = Literal["limits", "history", "protection"]
"""By what a forecast is made: jobs' limits alone, how long earlier jobs ran as well, or when others are protected no more."""


@dataclass(frozen=True, slots=True)
class ForecastFate:
    """The first forecast of one job. `late_ms`: how much later it began, or for how long it had waited past it at the end."""

    seed: int
    queue: QueueName
    priority_class: str
    basis: Basis
    ahead_ms: int
    late_ms: int
    began: bool

    @property
    def kept(self) -> bool:
        """Whether the job had begun by then."""
        return self.began and self.late_ms <= CADENCE


def fates(world: CrowdedCluster) -> Iterator[ForecastFate]:
    """The forecasts that can be judged: those of which the time has come, or the job has begun."""
    replay = Replay(world.nodes, world.policy, None, CADENCE)
    told: dict[str, tuple[Instant, Waits]] = {}
    for decided in replay.rounds(world.jobs, world.end):
        for verdict in decided.plan.verdicts:
            if isinstance(verdict, Waits) and isinstance(verdict.estimate, EarliestStart):
                told.setdefault(verdict.job, (decided.snapshot.time, verdict))
    classes = {one.job.name: one.job.spec.priority_class for one in world.jobs}
    for at, verdict in told.values():
        estimate, began = verdict.estimate, replay.runs[verdict.job].started_at
        if not isinstance(estimate, EarliestStart) or (began is None and estimate.at >= world.end):
            continue
        basis: Basis = "protection" if estimate.after_protection_of else "history" if estimate.by_history else "limits"
        late = (world.end if began is None else began) - estimate.at
        yield ForecastFate(
            world.seed, verdict.queue, classes[verdict.job], basis, estimate.at - at, late, began is not None
        )


def kept(found: Iterable[ForecastFate]) -> tuple[int, float | None]:
    """How many forecasts, and which part of them was kept; None where there are none."""
    found = tuple(found)
    return len(found), round(sum(fate.kept for fate in found) / len(found), 4) if found else None


def kept_by(found: Iterable[ForecastFate], of: Callable[[ForecastFate], str]) -> dict[str, tuple[int, float | None]]:
    """The same in parts, by name."""
    parts = defaultdict[str, list[ForecastFate]](list)
    for fate in found:
        parts[of(fate)].append(fate)
    return {name: kept(parts[name]) for name in sorted(parts)}
