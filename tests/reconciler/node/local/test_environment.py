"""A gang that started with fewer tasks than it asked for is told its own size, with ranks that have no gaps."""

from __future__ import annotations

from reconciler.node.local.environment import task_environments
from reconciler.protocols.backend import StartGang
from solver.model.cluster import NodeName
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement


def test_world_size_and_ranks_follow_what_was_bound() -> None:
    groups = (TaskGroup("worker", 8, Shape(), min_replicas=2), TaskGroup("evaluator", 4, Shape(), min_replicas=1))
    bound = (("evaluator", 0, "n1"), ("worker", 0, "n1"), ("worker", 1, "n2"), ("worker", 2, "n2"))
    tasks = tuple(TaskPlacement(group, index, NodeName(node)) for group, index, node in bound)
    order = StartGang(JobName("sweep"), 1, tasks, JobSpec(QueueName("q"), groups, command=("true",)))
    told = [
        (task.group, env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"])
        for task, env in task_environments(order, {}, 29500, {})
    ]
    assert told == [
        ("worker", "0", "0", "4"),
        ("worker", "1", "0", "4"),
        ("worker", "2", "1", "4"),
        ("evaluator", "3", "1", "4"),
    ]
