"""What a control plane says of jobs as they are submitted: whether they could ever run on the cluster as it is declared."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from unittest.mock import patch

import msgspec
import pytest

from hack.rounds.world import World
from reconciler.control.control import PolicyInForce
from reconciler.server import admission
from reconciler.server.admission import AdmissionCheck
from reconciler.server.services import ControlPlaneView
from solver.capacity.free_capacity import FreeCapacity
from solver.model.cluster import GpuType
from solver.model.shape import Shape
from solver.model.workload import Job, JobSpec, TaskGroup
from solver.plan.refusals import UnknownName
from solver.policy.policy import Policy
from solver.round.admission import Admission, Gate

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
    watch = ControlPlaneView(*cast("tuple[Any, Any, Any, Any]", (None, Standing(), None, None)))
    assert watch.admit(asking_for("1g.10gb")) == ()
    assert isinstance(watch.admit(asking_for("9g.10gb"))[0], UnknownName)


def test_the_types_of_declared_nodes_may_be_named_in_short() -> None:
    watch = ControlPlaneView(*cast("tuple[Any, Any, Any, Any]", (None, Standing(), None, None)))
    assert watch.gpu_types() == {node.gpu_type for node in WORLD.snapshot.nodes}


def test_jobs_that_no_open_node_serves_are_refused() -> None:
    shape = Shape(gpus=1, gpu_types=(GpuType("H100-SXM5-80GB"),))
    asked, spec = AdmissionCheck(), asking_for("1g.10gb")

    def refusals(shape: Shape, policy: Policy = WORLD.policy) -> tuple[str, ...]:
        groups = (TaskGroup("worker", 1, shape),)
        asking = msgspec.structs.replace(spec, task_groups=groups)
        return tuple(map(str, asked.refusals(PolicyInForce(policy.digest, policy, WORLD.snapshot.nodes), asking)))

    assert refusals(shape) == ()
    labelled = msgspec.structs.replace(shape, node_labels=("disk=nvme",))
    assert "the 0 nodes that it may be on (nodes with disk=nvme)" in refusals(labelled)[0]
    assert refusals(shape) == ()
    queues = tuple(msgspec.structs.replace(queue, pools=("nowhere",)) for queue in WORLD.policy.queues)
    closed = msgspec.structs.replace(WORLD.policy, queues=queues)
    assert "the 0 nodes that it may be on (pools nowhere)" in refusals(shape, closed)[0]


def in_force(revision: str) -> PolicyInForce:
    return PolicyInForce(revision, WORLD.policy, WORLD.snapshot.nodes)


def test_one_at_a_time_is_tried_in_the_room_that_all_share() -> None:
    admit, inside, at_once = Gate.admit, Counter[str](), list[int]()

    def slowly(gate: Gate, job: Job) -> Admission:
        inside["now"] += 1
        at_once.append(inside["now"])
        time.sleep(0.002)
        inside["now"] -= 1
        return admit(gate, job)

    asked = AdmissionCheck()
    with patch.object(Gate, "admit", slowly), ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda _: asked.refusals(in_force("abc"), asking_for("1g.10gb")), range(24)))
    assert told == [()] * 24
    assert set(at_once) == {1}


def test_the_empty_cluster_is_laid_out_once_for_each_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AdmissionCheck()

    def laid_out(revision: str, profile: str) -> int:
        with patch.object(FreeCapacity, "empty", wraps=FreeCapacity.empty) as empty:
            asked.refusals(in_force(revision), asking_for(profile))
        return empty.call_count

    assert [laid_out(revision, "1g.10gb") for revision in ("a", "a", "b", "b", "a")] == [1, 0, 1, 0, 1]
    assert laid_out("a", "2g.20gb") == 0
    monkeypatch.setattr(admission, "JUDGED_MAX", 2)
    assert laid_out("a", "1g.10gb") == 1, "what was remembered of the first is forgotten"
