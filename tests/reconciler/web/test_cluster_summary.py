"""Each GPU is held, free or not usable, in parts too, and every table adds up to the cluster."""

from __future__ import annotations

import msgspec

from reconciler.web.cluster_summary import ClusterSummary, GpuCount
from solver.model.cluster import DeviceId, Gpu, Node, NodeName
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import spec


def node(name: str, rack: str, **changed: object) -> Node:
    gpus = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(4))
    return msgspec.structs.replace(NODES[0], name=NodeName(name), rack=rack, gpus=gpus, **changed)


def task(of: str, *indices: int, share: MilliGpu | None = None) -> TaskPlacement:
    return TaskPlacement("worker", 0, NodeName(of), tuple(DeviceId(f"{of}/{index}") for index in indices), share)


def running(*tasks: TaskPlacement) -> Job:
    return Job(JobName("runs"), Instant(0), spec(), "ada", "running", 1, placement=tasks)


def test_what_is_held_free_and_not_usable() -> None:
    ill = node("ill", "r2")
    ill = msgspec.structs.replace(ill, gpus=(msgspec.structs.replace(ill.gpus[0], healthy=False), *ill.gpus[1:]))
    nodes = (node("well", "r10"), ill, node("shut", "r2", cordoned=True), node("lost", "r2", ready=False))
    jobs = (running(task("well", 0, 1), task("ill", 0, share=MilliGpu(250)), task("shut", 3)),)
    summary = ClusterSummary.of(snapshot_of(Instant(0), nodes, jobs))
    assert summary.racks == (GpuCount("r2", 3, 12_000, 1_250, 7_750), GpuCount("r10", 1, 4_000, 2_000, 0))
    assert summary.all == GpuCount("all", 4, 16_000, 3_250, 7_750)
    assert summary.all.free == 5_000
    assert (summary.running, summary.pending) == (1, 0)


def test_nodes_without_gpus_are_in_no_table() -> None:
    bare = msgspec.structs.replace(NODES[0], gpus=())
    summary = ClusterSummary.of(snapshot_of(Instant(0), (bare,), ()))
    assert (summary.all, summary.types, summary.racks) == (GpuCount("all", 0, 0, 0, 0), (), ())
