"""A need that is stated so as to get more gets nothing more: twin worlds, which differ in how one queue states its work alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest

from solver.model.quantities import MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import Job
from solver.plan.plan import Plan
from solver.policy.policy import Policy, PriorityClass, Queue, policy_of
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import Decide
from tests.solver.laws.twins import STATEMENTS, Pair

NOT_YET: dict[str, tuple[int, int, int, int]] = {"gang": (0, 3, 0, 0)}
"""By kind, in how many of the first 100 and of 2,000 twins something is gained; in how many of 100 and of 300 by search.

A gang in place of single jobs has a GPU more where part of it is guaranteed and the rest comes with that, or where another's gang
that grows takes back GPU for GPU, and so none of it.
"""


def gained(kind: str, worlds: int, decide: Decide) -> Counter[str]:
    """By law, in how many twins something is gained."""
    count = Counter[str]()
    for number in range(worlds):
        pair = Pair.of(kind, number, decide)
        assert pair.honest.rests, f"{kind} {number}"
        assert pair.gaming.rests, f"{kind} {number}"
        count.update(pair.gains().keys())
    return count


@pytest.mark.parametrize(
    ("column", "worlds", "decide"),
    [
        pytest.param(0, 100, production, marks=pytest.mark.thorough, id="program"),
        pytest.param(1, 2000, production, marks=pytest.mark.long, id="program-2000"),
        pytest.param(2, 100, greedy, marks=pytest.mark.thorough, id="search"),
        pytest.param(3, 300, greedy, marks=pytest.mark.long, id="search-300"),
    ],
)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_nothing_is_gained_by_how_a_need_is_stated(
    kind: str, column: int, worlds: int, decide: Decide, record_property: Callable[[str, object], None]
) -> None:
    count = gained(kind, worlds, decide)
    told = ", ".join(f"{law} {n}" for law, n in sorted(count.items())) or "nothing gained"
    record_property("figure", f"of {worlds} twins, {kind}: {told}")
    assert count.total() <= NOT_YET.get(kind, (0, 0, 0, 0))[column], told


# Deciders that can be gamed.

WEIGHED: dict[str, Callable[[Job, PriorityClass], int]] = {
    "gang": lambda job, _: job.spec.task_groups[0].least - 1,
    "tiny": lambda job, _: 1,
    "elastic": lambda job, _: job.spec.task_groups[0].replicas - job.spec.task_groups[0].least,
    "heavy": lambda job, _: job.spec.task_groups[0].shape.cpu // 50_000,
    "firm": lambda _, known: not known.preemptible,
    "firm-gang": lambda _, known: not known.preemptible,
    "names": lambda job, _: "qrsx".index(job.spec.queue),
}
"""By kind, something of a queue's jobs for which a faulty decider gives its queue more."""


def impressed(worth: Callable[[Job, PriorityClass], int]) -> Decide:
    """A decider for which queues are guaranteed more, and weigh more, the more of something their jobs have."""

    def decide(snapshot: Snapshot, policy: Policy) -> Plan:
        more = Counter[str]()
        for job in snapshot.jobs:
            known = policy.priority_class(job)
            assert known is not None
            for queue in policy.queues:
                if queue.name in (job.spec.queue, "x"):
                    more[queue.name] += worth(job, known)
        queues = tuple(_with_more(queue, more[queue.name]) for queue in policy.queues)
        return production(snapshot, policy_of(queues, policy.priority_classes, policy.scheduling))

    return decide


def _with_more(queue: Queue, more: int) -> Queue:
    (quota,) = queue.quota
    said = None if quota.guaranteed is None else MilliGpu(quota.guaranteed + 1000 * more)
    quotas = (msgspec.structs.replace(quota, guaranteed=said),)
    return msgspec.structs.replace(queue, weight=queue.weight + 9 * more, quota=quotas)


@pytest.mark.parametrize("kind", STATEMENTS)
def test_what_can_be_gamed_is_found(kind: str) -> None:
    decide = impressed(WEIGHED[kind])
    assert any(Pair.of(kind, number, decide).gains() for number in range(40))
