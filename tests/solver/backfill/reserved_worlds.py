"""Random small worlds in which capacity is held for gangs that wait, as an earlier round left it, and new jobs have arrived."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName
from solver.policy.harm import Protection
from solver.policy.policy import Policy, Reservations
from solver.round.solve import solve
from tests.solver.aftermath import applied, victims_gone
from tests.solver.worlds import HOUR_MS, jobs, policies, snapshots


@st.composite
def reserved_worlds(
    draw: st.DrawFn, nodes_max: int = 4, jobs_max: int = 5, later_max: int = 3
) -> tuple[Snapshot, Policy]:
    """A world after a greedy round under limits, in which capacity is held for two gangs a type; since, jobs ended and came.

    In most of them work is protected for so long that it can't run on what is reserved until that is needed.
    """
    policy = draw(policies())
    scheduling = msgspec.structs.replace(policy.scheduling, reservations=Reservations(2))
    protection = Protection(Duration(HOUR_MS * draw(st.sampled_from([0, 2, 99, 99, 99]))))
    classes = tuple(msgspec.structs.replace(known, protection=protection) for known in policy.priority_classes)
    policy = msgspec.structs.replace(policy, scheduling=scheduling, priority_classes=classes)
    world = draw(snapshots(nodes_max, jobs_max))
    pressing = [msgspec.structs.replace(draw(jobs(number)), name=JobName(f"more-{number}")) for number in range(5)]
    limited = [_limited(one, draw(st.integers(-1, 6))) for one in (*world.jobs, *pressing)]
    before = snapshot_of(world.time, world.nodes, limited)
    after = victims_gone(applied(before, solve(before, policy, None)))
    left = [one for one in after.jobs if not one.placement or draw(st.booleans())]
    later = [
        _later(draw(jobs(number)), draw(st.sampled_from([-1, 0, 6])))
        for number in range(draw(st.integers(1, later_max)))
    ]
    return snapshot_of(after.time, after.nodes, [*left, *later], after.in_flight), policy


def _limited(one: Job, hours: int) -> Job:
    """With a limit; below 0 hours: none."""
    limit = Duration(hours * HOUR_MS + 1) if hours >= 0 else None
    if one.placement:
        return msgspec.structs.replace(one, time_limit=limit)
    return msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, time_limit=limit))


def _later(one: Job, hours: int) -> Job:
    return msgspec.structs.replace(_limited(one, hours), name=JobName(f"later-{one.name}"))
