"""Random small worlds in which documents keep capacity, beside what is reserved for gangs."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.harm import Evictable
from solver.policy.policy import Policy
from solver.policy.repeat import Repeat, RepeatedWindow
from solver.policy.reservation import DeclaredReservation
from tests.solver.backfill.reserved_worlds import reserved_worlds
from tests.solver.worlds import HOUR_MS, TYPES


@st.composite
def declared_worlds(
    draw: st.DrawFn, nodes_max: int = 4, jobs_max: int = 5, later_max: int = 3
) -> tuple[Snapshot, Policy]:
    """A world with reservations for gangs, into whose policy documents have come since."""
    snapshot, policy = draw(reserved_worlds(nodes_max, jobs_max, later_max))
    documents: list[DeclaredReservation] = []
    for number in range(draw(st.integers(1, 3))):
        queue, users = draw(who(policy))
        start = snapshot.time.after(draw(st.integers(-2, 6)) * HOUR_MS)
        until = start.after(draw(st.integers(1, 8)) * HOUR_MS)
        evict = draw(st.sampled_from(EVICTS))
        repeat = draw(repeats(start, until))
        document = DeclaredReservation(
            f"d{number}", start, None if repeat else until, queue, users, repeat=repeat, evict=evict
        )
        names = [node.name for node in snapshot.nodes]
        if draw(st.booleans()) and names:
            free = [name for name in names if not any(name in (known.nodes or ()) for known in documents)]
            chosen = draw(st.lists(st.sampled_from(free), unique=True, min_size=1, max_size=2)) if free else []
            documents.append(msgspec.structs.replace(document, nodes=tuple(sorted(chosen))))
        else:
            count, size = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4]))
            gpu_type = draw(st.sampled_from(TYPES))
            counted = msgspec.structs.replace(document, gpu_type=gpu_type, count=count, gpus_per_node=size)
            documents.append(counted)
    return snapshot, msgspec.structs.replace(policy, reservations=tuple(documents))


EVICTS: tuple[Evictable, ...] = ("none", "preemptible", "preemptible", "all")


@st.composite
def repeats(draw: st.DrawFn, start: Instant, until: Instant) -> Repeat | None:
    """None, or the same length of time again some hours after each end."""
    times, hours = draw(st.integers(0, 3)), draw(st.integers(0, 6))
    if not times:
        return None
    every = until - start + hours * HOUR_MS
    windows = tuple(RepeatedWindow(start.after(every * time), until.after(every * time)) for time in range(times + 1))
    return Repeat("", Duration(until - start), "UTC", windows)


@st.composite
def who(draw: st.DrawFn, policy: Policy) -> tuple[QueueName | None, tuple[str, ...] | None]:
    """A queue, users, or both."""
    queue = draw(st.sampled_from([None, *(queue.name for queue in policy.queues)]))
    users = draw(st.sampled_from([("ada",), ("ada", "bob")] if queue is None else [None, ("ada",)]))
    return queue, users
