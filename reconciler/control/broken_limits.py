"""Limits that are below what their queues hold: until when they are to be kept again, and which jobs are evicted then. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from reconciler.model.broken_limit import BrokenLimit
from solver.model.inflight import ConvergenceClock
from solver.model.parts import owner_of
from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.preemption.departures import convergence_of, departures
from solver.quota.entitlement import queue_limits_of, use_by_line


def broken_limits(snapshot: Snapshot, policy: Policy) -> Iterator[BrokenLimit]:
    """Every one, by queue and GPU type; twice where a limit was lowered again before its time was over."""
    tree = QueueTree.of(policy)
    limits = queue_limits_of(tree)
    used = use_by_line(snapshot, tree) if limits else {}
    for line, queue_max in sorted(limits.items()):
        held = MilliGpu(used.get(line, 0))
        if held <= queue_max:
            continue
        evict = convergence_of(policy, tree, line.queue).evict
        clocks = [clock for clock in snapshot.in_flight.convergence if (clock.queue, clock.gpu_type) == line]
        for clock in sorted(clocks, key=lambda clock: clock.deadline):
            jobs = _evicted_then(snapshot, policy, clock)
            yield BrokenLimit(*line, held, clock.limit, evict, clock.deadline, jobs)
        if not clocks:
            yield BrokenLimit(*line, held, MilliGpu(queue_max), evict)


def _evicted_then(snapshot: Snapshot, policy: Policy, clock: ConvergenceClock) -> tuple[JobName, ...]:
    """By the rule alone, and once for a gang whatever parts of it leave."""
    then = msgspec.structs.replace(
        snapshot,
        time=max(snapshot.time, clock.deadline),
        in_flight=msgspec.structs.replace(snapshot.in_flight, convergence=(clock,)),
    )
    found = (known for known in departures(then, policy) if (known.rule, known.queue) == ("converge", clock.queue))
    return tuple(dict.fromkeys(owner_of(known.name) for known in found))
