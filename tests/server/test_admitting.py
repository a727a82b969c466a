"""What a control plane says of jobs as they are submitted: whether they could ever run on the cluster as it is declared."""

from __future__ import annotations

from typing import Any, cast

from hack.rounds.world import World
from reconciler.control import PolicyInForce
from reconciler.server.services import Watch
from solver.plan.refusals import UnknownName
from solver.world.shape import Shape
from solver.world.workload import JobSpec, TaskGroup

WORLD = World(512, pending=0)


class Standing:
    """The policy in force, as `StandingPolicy` says it."""

    def current(self) -> PolicyInForce:
        return PolicyInForce("abc", WORLD.policy, WORLD.snapshot.nodes)


def asking_for(profile: str) -> JobSpec:
    above = {queue.parent for queue in WORLD.policy.queues}
    leaf = next(queue.name for queue in WORLD.policy.queues if queue.name not in above)
    return JobSpec(leaf, (TaskGroup("notebook", 1, Shape(mig=profile)),), "high")


def test_instances_that_pools_may_be_partitioned_into_could_be_had_one_day() -> None:
    watch = Watch(*cast("tuple[Any, Any, Any, Any]", (None, Standing(), None, None)))
    assert watch.admit(asking_for("1g.10gb")) == ()
    assert isinstance(watch.admit(asking_for("9g.10gb"))[0], UnknownName)
