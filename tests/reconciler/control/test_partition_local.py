"""The whole way on the local backend: a job asks for an instance, a declared GPU is partitioned, and the task sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.control.control import ControlPlane, PolicyInForce
from reconciler.control.ledger_site import one_pass
from reconciler.control.recording import solver_with
from reconciler.model.clock import SystemClock
from reconciler.node.local.gpus import mig_name
from reconciler.store.store import open_store
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from solver.policy.division import MigGeometry
from solver.policy.policy import Queue, policy_of
from tests.contracts.local_worlds import LocalWorld, local_world
from tests.contracts.simulated_worlds import NODES

JOB = JobName("small")
PASSES_MAX = 200


class InForce:
    """Implements PolicySource: rounds may partition every GPU."""

    def current(self) -> PolicyInForce:
        free = MigGeometry("parts", "pool", "free", "H100-80GB")
        return PolicyInForce("revision", policy_of((Queue(QueueName("q")),), mig=(free,)), NODES)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LocalWorld]:
    with local_world(tmp_path) as made:
        yield made


def test_a_task_sees_the_instance_that_was_made_for_it(world: LocalWorld, tmp_path: Path) -> None:
    store, clock = open_store(tmp_path / "quorate.db"), SystemClock()
    plane = ControlPlane(
        "only",
        store.jobs,
        store.ledger,
        store.history,
        store.checkpoints,
        store.interventions,
        store.health,
        world.backend,
        world.backend,
        InForce(),
        solver_with(None),
        clock,
    )
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(mig="2g.20gb")),), command=world.runs())
    store.jobs.submit(JOB, spec, "ada", clock.now(), "key")
    for _ in range(PASSES_MAX):
        one_pass(plane)
        if any(claim.running_since is not None for claim in store.ledger.claims()):
            break
        time.sleep(0.05)
    (claim,) = store.ledger.claims()
    (task,) = claim.tasks
    assert task.mig is not None
    assert claim.running_since is not None
    assert world.environment(JOB, 1, "worker", 0)["CUDA_VISIBLE_DEVICES"] == mig_name(task.devices[0])
    assert [event.kind for event in store.history.events(task.mig.gpu)] == ["partitions", "partitioned"]
    store.close()
