"""Since when the GPUs of a job do nothing, by the minutes that are known of them: what is not known is never held against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from reconciler.model.gpu_use import MINUTE
from reconciler.model.idle_policy import GpuActivityBelow
from solver.model.cluster import DeviceId
from solver.model.quantities import Duration, Instant
from solver.model.workload import TaskPlacement

FRESH: Final = Duration(4 * MINUTE)
"""The newest minute of each GPU began no longer ago: a minute is over after one, and told within another."""

ActiveMinutes = Mapping[DeviceId, Mapping[Instant, float]]
"""By GPU and the begin of each known minute, how active it was, in percent."""


class GpuStill(NamedTuple):
    """All GPUs of a job are below a bound since then, as far as is known at `seen_at`."""

    since: Instant
    seen_at: Instant

    @property
    def lasts(self) -> Duration:
        """For how long."""
        return Duration(self.seen_at - self.since)


def whole_gpus(tasks: Iterable[TaskPlacement]) -> tuple[DeviceId, ...] | None:
    """The GPUs that a job holds; None where it holds a part of one, of which it is not known who uses it, or holds none."""
    tasks = tuple(tasks)
    if any(task.mig is not None or task.share is not None for task in tasks):
        return None
    return tuple(device for task in tasks for device in task.devices) or None


def still_of(
    gpus: Iterable[DeviceId], minutes: ActiveMinutes, bound: GpuActivityBelow, begun: Instant, now: Instant
) -> GpuStill | None:
    """What is known of GPUs that a job uses since `begun`; None: too little.

    The window ends with the newest minute that is known of each of them, and is as long as the bound says, or goes back to the
    job's first whole minute. `since` lies behind the last minute in which one was not below the bound.
    """
    known = [minutes.get(gpu, {}) for gpu in gpus]
    if not known or not all(known):
        return None
    newest = min(max(of_gpu) for of_gpu in known)
    first = Instant(-(-begun // MINUTE) * MINUTE)
    seen_at = newest.after(MINUTE)
    if not -FRESH < now - newest < FRESH or newest < first:
        return None
    start = Instant(max(first, seen_at - bound.lasts))
    since = start
    for of_gpu in known:
        within = {at: active for at, active in of_gpu.items() if start <= at < seen_at}
        if len(within) * MINUTE < bound.measured * (seen_at - start):
            return None
        busy = [at for at, active in within.items() if active >= bound.below]
        since = max(since, max(busy).after(MINUTE) if busy else since)
    return GpuStill(since, seen_at)
