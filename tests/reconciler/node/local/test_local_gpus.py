"""Declared GPUs of the local backend: kept in its folder, and refused where there is hardware or Git says otherwise."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from reconciler.model.clock import SystemClock
from reconciler.node.local import LocalBackend, StateFolderError
from reconciler.node.local.gpus import DeclaredGpus, mig_name
from reconciler.protocols.backend import Cursor, Epoch, GpuPartitioned, PartitionGpu, StartGang
from solver.model.cluster import DeviceId, MigInstance, Node, NodeName
from solver.model.quantities import MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, MigSlot, QueueName, TaskGroup, TaskPlacement
from tests.contracts.simulated_worlds import NODES

ONE = Epoch(1)
GPU = DeviceId("n1/0")
ORDER = PartitionGpu(NodeName("n1"), GPU, 1, (MigInstance("1g.10gb", 0),))


def backend_on(folder: Path, nodes: tuple[Node, ...] = NODES, real_gpus: str = "none") -> LocalBackend:
    """A backend of declared nodes; `real_gpus` names where the driver would list GPUs."""
    return LocalBackend(
        folder / "state", lambda: nodes, SystemClock(), gpus=lambda kept: DeclaredGpus(kept, folder / real_gpus)
    )


def came_of(backend: LocalBackend) -> GpuPartitioned:
    """What is reported of the only order."""
    (done,) = backend.changes(Cursor(0)).partitioned
    return done


def test_real_gpus_are_not_pretended_to_be_partitioned(tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    backend = backend_on(tmp_path, real_gpus="gpus")
    backend.partition(ORDER, ONE)
    assert (came_of(backend).attempt, came_of(backend).instances) == (1, None)
    assert "real GPUs" in came_of(backend).refused
    assert backend.changes(Cursor(0)).nodes[0].gpus[0].instances is None


def test_nothing_is_started_on_an_instance_of_a_real_gpu(tmp_path: Path) -> None:
    (tmp_path / "gpus").mkdir()
    gpus = (msgspec.structs.replace(NODES[0].gpus[0], instances=ORDER.instances), *NODES[0].gpus[1:])
    backend = backend_on(tmp_path, (msgspec.structs.replace(NODES[0], gpus=gpus),), real_gpus="gpus")
    slot = MigSlot(GPU, MigInstance("1g.10gb", 0), MilliGpu(125))
    task = TaskPlacement("worker", 0, NodeName("n1"), (slot.instance.id_on(GPU),), mig=slot)
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(mig="1g.10gb")),), command=("true",))
    backend.submit(StartGang(JobName("job"), 1, (task,), spec), ONE)
    (status,) = backend.changes(Cursor(0)).tasks
    assert status.state == "lost"
    assert "real GPUs" in status.detail


def test_what_git_declares_partitioned_stays_so(tmp_path: Path) -> None:
    declared = (MigInstance("7g.80gb", 0),)
    gpus = (msgspec.structs.replace(NODES[0].gpus[0], instances=declared), *NODES[0].gpus[1:])
    backend = backend_on(tmp_path, (msgspec.structs.replace(NODES[0], gpus=gpus),))
    backend.partition(ORDER, ONE)
    assert "Git declares" in came_of(backend).refused
    assert backend.changes(Cursor(0)).nodes[0].gpus[0].instances == declared


def test_a_gpu_that_is_nowhere_is_refused(tmp_path: Path) -> None:
    backend = backend_on(tmp_path)
    backend.partition(msgspec.structs.replace(ORDER, device=DeviceId("n2/0")), ONE)
    assert came_of(backend).refused == "n1 has no GPU n2/0"


def test_gpus_stay_as_they_were_when_an_order_is_refused(tmp_path: Path) -> None:
    backend = backend_on(tmp_path)
    backend.partition(ORDER, ONE)
    (tmp_path / "gpus").mkdir()
    later = backend_on(tmp_path, real_gpus="gpus")
    later.partition(msgspec.structs.replace(ORDER, attempt=2, instances=None), ONE)
    assert (came_of(later).attempt, came_of(later).instances) == (2, ORDER.instances)


def test_a_damaged_file_is_said_so(tmp_path: Path) -> None:
    backend = backend_on(tmp_path)
    backend.partition(ORDER, ONE)
    (kept,) = (tmp_path / "state" / "gpus").iterdir()
    kept.write_text("{")
    with pytest.raises(StateFolderError, match="damaged"):
        backend.changes(Cursor(0))


def test_instances_have_names_of_their_own_that_stay() -> None:
    names = {mig_name(instance.id_on(gpu)) for gpu in (GPU, DeviceId("n1/1")) for instance in ORDER.instances or ()}
    assert len(names) == 2
    assert mig_name(DeviceId("n1/0/1g.10gb@0")) == "MIG-e5074e85-9bb3-5290-babc-e7d32b7ff1fb"
