"""Health on real processes, here and under agents: a node that two gangs find slow is drained, tested, and takes work again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import pytest

from reconciler.control.control import ControlPlane, PolicyInForce
from reconciler.control.ledger_site import one_pass
from reconciler.control.recording import solver_with
from reconciler.documents.operations import Operations
from reconciler.model.clock import SystemClock
from reconciler.model.health_policy import HealthPolicy, NodeTest, StragglerRule
from reconciler.model.task_log import Logs
from reconciler.store.store import SqlStore, open_store
from solver.model.quantities import Duration
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from solver.policy.policy import Queue, policy_of
from tests.contracts.baremetal_worlds import baremetal_world
from tests.contracts.local_worlds import LocalWorld, local_world
from tests.contracts.simulated_worlds import NODES

PASSES_MAX = 1_200
FIRST, SECOND = JobName("first"), JobName("second")
SLOW_ON_N1 = (
    'rate=10; test "$QUORATE_NODE" = n1 && rate=1; '
    'printf \'{"step": 1, "rate": %d}\' $rate > "$QUORATE_PROGRESS_FILE"; exec sleep 600'
)

WorldIn = Callable[[Path], AbstractContextManager[LocalWorld]]


class InForce:
    """Implements PolicySource. The test writes down on which GPUs it ran."""

    def __init__(self, witness: Path) -> None:
        command = ("sh", "-c", 'echo "$QUORATE_NODE $QUORATE_DEVICES" >> "$0"', str(witness))
        health = HealthPolicy(
            straggler=StragglerRule(several="drain", held=Duration(1)),
            bad_node_ttl=Duration(1),
            test=NodeTest(command),
        )
        self.operations = Operations(health=health)

    def current(self) -> PolicyInForce:
        return PolicyInForce("revision", policy_of((Queue(QueueName("q")),)), NODES, self.operations)


def plane_of(world: LocalWorld, store: SqlStore, policies: InForce) -> ControlPlane:
    stores = store.jobs, store.ledger, store.history, store.checkpoints, store.interventions, store.health
    logs = cast("Logs", world.backend)  # nobody reads any
    return ControlPlane("only", *stores, world.backend, logs, policies, solver_with(None), SystemClock())


@pytest.mark.thorough
@pytest.mark.parametrize("world_in", [local_world, baremetal_world])
def test_a_node_that_two_gangs_find_slow_leaves_and_comes_back_by_a_test(world_in: WorldIn, tmp_path: Path) -> None:
    witness, store = tmp_path / "tested", open_store(tmp_path / "quorate.db")
    with world_in(tmp_path) as world:
        plane = plane_of(world, store, InForce(witness))

        def until(reached: Callable[[], bool]) -> None:
            for _ in range(PASSES_MAX):
                one_pass(plane)
                if reached():
                    return
                time.sleep(0.02)
            raise AssertionError("it never came about")

        def news() -> list[str]:
            events = (event.kind for event in store.history.events("n1"))
            return [kind for kind in events if kind.startswith("node-")]

        def submit(job: JobName) -> None:
            group = TaskGroup("worker", 4, Shape(gpus=2))
            spec = JobSpec(QueueName("q"), (group,), command=("sh", "-c", SLOW_ON_N1))
            store.jobs.submit(job, spec, "ada", plane.clock.now(), job)

        submit(FIRST)
        until(lambda: news() == ["node-suspect"])
        store.jobs.request_cancel(FIRST, "ada")
        submit(SECOND)
        until(lambda: store.ledger.attempts().get(SECOND) == 2 and store.ledger.claims()[0].running_since is not None)
        assert news() == ["node-suspect", "node-drained", "node-tested", "node-well"]
        assert witness.read_text() == "n1 n1/0,n1/1,n1/2,n1/3\n"
        assert not [event for event in store.history.events("n2") if event.kind.startswith("node-")]
        assert store.jobs.job(SECOND).failures == ()
    store.close()
