"""Limits that are below what their queues hold: until when they are to be kept again, and which jobs are evicted then. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

from reconciler.control.lending import lent_jobs, with_lent
from reconciler.control.passes import Pass
from reconciler.model.broken_limit import BrokenLimit
from solver.model.cluster import GpuType
from solver.model.inflight import ConvergenceClock
from solver.model.parts import owner_of
from solver.model.quantities import MILLI_PER_GPU, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.policy.host_share import Resource
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree
from solver.preemption.departures import convergence_of, departures
from solver.quota.entitlement import queue_limits_of, use_by_line
from solver.quota.users import user_caps_of


def broken_limits(snapshot: Snapshot, policy: Policy, lent: Collection[JobName] = ()) -> Iterator[BrokenLimit]:
    """Every one, by queue and GPU type; twice where a limit was lowered again before its time was over. `lent`: jobs that rounds
    count as borrowed by all.
    """
    tree = QueueTree.of(policy)
    limits = queue_limits_of(tree)
    used = use_by_line(snapshot, tree) if limits else {}
    for line, queue_max in sorted(limits.items()):
        held = MilliGpu(used.get(line, 0))
        if held <= queue_max:
            continue
        evict = convergence_of(policy, tree, line.queue).evict
        clocks = [c for c in snapshot.in_flight.convergence if (c.queue, c.gpu_type) == line and c.resource is None]
        for clock in sorted(clocks, key=lambda clock: clock.deadline):
            jobs = _evicted_then(snapshot, policy, clock, lent)
            yield BrokenLimit(*line, held, clock.limit, evict, clock.deadline, jobs)
        if not clocks:
            yield BrokenLimit(*line, held, MilliGpu(queue_max), evict)

    yield from _of_host(snapshot, policy, tree, lent)


def _of_host(snapshot: Snapshot, policy: Policy, tree: QueueTree, lent: Collection[JobName]) -> Iterator[BrokenLimit]:
    """The same of CPU and memory."""
    caps = user_caps_of(snapshot, tree)
    for line, most in sorted(caps.host_max.items()):
        used = caps.used.get(line, 0)
        if used > most:
            held, limit = (_in_units(line.resource, amount) for amount in (used, most))
            evict = convergence_of(policy, tree, line.queue).evict
            clocks = [c for c in snapshot.in_flight.convergence if (c.queue, c.resource) == line[:2]]
            for clock in sorted(clocks, key=lambda clock: clock.deadline):
                jobs, asks = _evicted_then(snapshot, policy, clock, lent), _in_units(line.resource, clock.most)
                yield BrokenLimit(line.queue, GpuType(""), held, asks, evict, clock.deadline, jobs, line.resource)
            if not clocks:
                yield BrokenLimit(line.queue, GpuType(""), held, limit, evict, resource=line.resource)


def _in_units(resource: Resource, amount: int) -> MilliGpu:
    """Cores, or GiB, with three decimals."""
    return MilliGpu(amount if resource == "cpu" else round(amount * MILLI_PER_GPU / 2**30))


def broken_limits_of(last: Pass) -> Iterator[BrokenLimit]:
    """Those that a pass saw: of the limits in Git, whatever was lent meanwhile."""
    seen, policy = last.unlent or (last.snapshot, last.policy)
    return broken_limits(seen, policy, lent_jobs(last.snapshot) if last.unlent else ())


def _evicted_then(
    snapshot: Snapshot, policy: Policy, clock: ConvergenceClock, lent: Collection[JobName]
) -> tuple[JobName, ...]:
    """By the rule alone, and once for a gang whatever parts of it leave."""
    then = msgspec.structs.replace(
        snapshot,
        time=max(snapshot.time, clock.deadline),
        in_flight=msgspec.structs.replace(snapshot.in_flight, convergence=(clock,)),
    )
    of_round = with_lent(then, policy, lent)
    found = (known for known in departures(*of_round) if (known.rule, known.queue) == ("converge", clock.queue))
    return tuple(dict.fromkeys(owner_of(known.name) for known in found))
