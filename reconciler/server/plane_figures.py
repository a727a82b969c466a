"""Figures of a control plane as a whole: which program it is, whether it leads, which policy is in force, what its queues have."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final, get_args

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.control.passes import Pass
from reconciler.control.queue_use import QueueUse
from reconciler.control.runner import Condition, LoopStatus
from reconciler.documents.ended_windows import ends_of_windows
from reconciler.model.git_status import PolicyStatus
from reconciler.model.queue_line import HostQueueLine, QueueLine, amount_number
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.placement.stranded_gpus import stranded_gpus
from solver.policy.host_share import Resource
from solver.policy.policy import Policy, Queue

_LEADS: Final[frozenset[Condition]] = frozenset({"leading", "observing"})
_QUEUES: Final = "of a queue with those below it, by type."
_HOST: Final[tuple[tuple[str, Resource, str, Callable[[HostQueueLine], str | None]], ...]] = (
    ("quorate_queue_cpu_cores_held", "cpu", "CPU cores that jobs hold", lambda line: line.held),
    (
        "quorate_queue_cpu_cores_without_gpus",
        "cpu",
        "CPU cores that jobs without GPUs hold",
        lambda line: line.without_gpus,
    ),
    (
        "quorate_queue_cpu_cores_guaranteed",
        "cpu",
        "CPU cores guaranteed to jobs without GPUs",
        lambda line: line.guaranteed,
    ),
    (
        "quorate_queue_cpu_cores_fair_share",
        "cpu",
        "Fair share of jobs without GPUs in CPU cores",
        lambda line: line.fair_share,
    ),
    ("quorate_queue_cpu_cores_borrowed", "cpu", "CPU cores held beyond the guarantee", lambda line: line.borrowed),
    (
        "quorate_queue_cpu_cores_waiting",
        "cpu",
        "CPU cores asked for by jobs without GPUs that wait",
        lambda line: line.waiting,
    ),
    ("quorate_queue_cpu_cores_max", "cpu", "The most CPU cores that may be held", lambda line: line.max),
    ("quorate_queue_memory_bytes_held", "memory", "Memory that jobs hold", lambda line: line.held),
    (
        "quorate_queue_memory_bytes_without_gpus",
        "memory",
        "Memory that jobs without GPUs hold",
        lambda line: line.without_gpus,
    ),
    (
        "quorate_queue_memory_bytes_guaranteed",
        "memory",
        "Memory guaranteed to jobs without GPUs",
        lambda line: line.guaranteed,
    ),
    (
        "quorate_queue_memory_bytes_fair_share",
        "memory",
        "Fair share of jobs without GPUs",
        lambda line: line.fair_share,
    ),
    ("quorate_queue_memory_bytes_borrowed", "memory", "Memory held beyond the guarantee", lambda line: line.borrowed),
    (
        "quorate_queue_memory_bytes_waiting",
        "memory",
        "Memory asked for by jobs without GPUs that wait",
        lambda line: line.waiting,
    ),
    ("quorate_queue_memory_bytes_max", "memory", "The most memory that may be held", lambda line: line.max),
)
"""Of CPU and memory the name of each metric, what it is about, its help, and its value as a queue's line writes it."""


class PlaneFigures(Collector):
    """Read at the moment of the scrape. `uses`: of every queue in the last pass; it is asked only once there was one."""

    def __init__(
        self,
        loop: Callable[[], LoopStatus],
        policy: Callable[[], PolicyStatus],
        uses: Callable[[], tuple[tuple[Queue, QueueUse], ...]],
    ) -> None:
        self._loop = loop
        self._policy = policy
        self._uses = uses
        self._stranded: tuple[Pass | None, tuple[Metric, ...]] = None, ()

    def collect(self) -> Iterator[Metric]:
        """What is known."""
        loop, policy = self._loop(), self._policy()
        yield _build()
        yield from _leads(loop)
        yield from _in_force(policy)
        if loop.last is not None and policy.last_applied_revision:
            uses = self._uses()
            yield from _queues(uses)
            yield from _of_host(uses)
            yield _windows(loop.last.policy)
            yield from self._free(loop.last)

    def _free(self, last: Pass) -> tuple[Metric, ...]:
        """Worked out once for a pass, however often it is asked for."""
        known = self._stranded
        if known[0] is not last:
            gauge = GaugeMetricFamily(
                "quorate_gpus_stranded",
                "Free GPUs that no task of a shape that waits or runs could use where they are.",
                labels=["gpu_type"],
            )
            for gpu_type, gpus in sorted(stranded_gpus(last.snapshot, last.policy).items()):
                gauge.add_metric([gpu_type], gpus)
            self._stranded = known = last, (gauge,)
        return known[1]


def _build() -> Metric:
    try:
        of = version("quorate")
    except PackageNotFoundError:
        of = "unknown"
    told = GaugeMetricFamily("quorate_build_info", "1, with what runs.", labels=["version", "python"])
    told.add_metric([of, platform.python_version()], 1)
    return told


def _leads(loop: LoopStatus) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "quorate_leader",
        "1 where this control plane decides rounds, 0 where it stands by.",
        value=loop.condition in _LEADS,
    )
    conditions = GaugeMetricFamily(
        "quorate_loop_condition", "1 for the condition of the loop, 0 for all others.", labels=["condition"]
    )
    for condition in get_args(Condition):
        conditions.add_metric([condition], condition == loop.condition)
    yield conditions


def _in_force(policy: PolicyStatus) -> Iterator[Metric]:
    if policy.last_applied_revision:
        info = GaugeMetricFamily("quorate_policy_info", "1, with the revision in force.", labels=["revision"])
        info.add_metric([policy.last_applied_revision], 1)
        yield info
    yield GaugeMetricFamily(
        "quorate_policy_stalled",
        "1 where a newer revision is not put in force.",
        value=policy.condition("Stalled").status,
    )


def _windows(policy: Policy) -> Metric:
    ends = GaugeMetricFamily(
        "quorate_windows_end_timestamp_seconds",
        "When the last window of a rule ends, of hours of a queue or of a Reservation that comes again.",
        labels=["windows"],
    )
    for what, end in ends_of_windows(policy):
        ends.add_metric([what], end / 1000)
    return ends


def _queues(uses: tuple[tuple[Queue, QueueUse], ...]) -> Iterator[Metric]:
    families: dict[str, tuple[GaugeMetricFamily, Callable[[QueueLine], MilliGpu | None]]] = {
        "held": (_gauge("quorate_queue_gpus_held", "GPUs that jobs hold,"), lambda line: line.held),
        "guaranteed": (_gauge("quorate_queue_gpus_guaranteed", "Guaranteed GPUs,"), lambda line: line.guaranteed),
        "fair share": (_gauge("quorate_queue_gpus_fair_share", "Fair share in GPUs,"), lambda line: line.fair_share),
        "borrowed": (
            _gauge("quorate_queue_gpus_borrowed", "GPUs held beyond the guarantee,"),
            lambda line: line.borrowed,
        ),
        "waiting": (
            _gauge("quorate_queue_gpus_waiting", "GPUs asked for by jobs that wait,"),
            lambda line: line.waiting,
        ),
        "max": (_gauge("quorate_queue_gpus_max", "The most GPUs that may be held,"), lambda line: line.max),
    }
    for queue, use in uses:
        for line in use.gpus:
            for family, value in families.values():
                milli = value(line)
                if milli is not None:
                    family.add_metric([queue.name, line.gpu_type], milli / MILLI_PER_GPU)
    yield from (family for family, _ in families.values())
    yield _users_below_share(uses)


def _users_below_share(uses: tuple[tuple[Queue, QueueUse], ...]) -> GaugeMetricFamily:
    """A number for each queue and GPU type: users have no series of their own, for there may be thousands."""
    text = "Users of a queue that wait and hold less than their fair share of it, by type."
    found = GaugeMetricFamily("quorate_queue_users_below_share", text, labels=["queue", "gpu_type"])
    for queue, use in uses:
        below = Counter({one.gpu_type: 0 for one in use.users})
        below.update(one.gpu_type for one in use.users if one.waiting and one.held < one.fair_share)
        for gpu_type, users in sorted(below.items()):
            found.add_metric([queue.name, gpu_type], users)
    return found


def _gauge(name: str, what: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, f"{what} {_QUEUES}", labels=["queue", "gpu_type"])


def _of_host(uses: tuple[tuple[Queue, QueueUse], ...]) -> Iterator[Metric]:
    """CPU and memory, where some queue says anything of either."""
    for name, resource, what, value in _HOST:
        family = GaugeMetricFamily(name, f"{what}, of a queue with those below it.", labels=["queue"])
        for queue, use in uses:
            for text in (value(line) for line in use.host if line.resource == resource):
                if text is not None:
                    family.add_metric([queue.name], amount_number(resource, text))
        if family.samples:
            yield family
