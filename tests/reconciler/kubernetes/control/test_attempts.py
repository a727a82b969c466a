"""What is told of a gang's tasks, where these are pods."""

from __future__ import annotations

from reconciler.kubernetes.control.attempts import PodAttempts
from reconciler.kubernetes.objects import names
from reconciler.lifecycle.jobs.backend_reports import BackendReports
from solver.model.workload import JobName
from tests.reconciler.kubernetes.control.test_sight import GANG, a_worker, sight_of
from tests.reconciler.kubernetes.samples import node, pod


def test_the_tasks_of_a_gang_stand_as_its_pods_do() -> None:
    running = {"phase": "Running", "startTime": "2026-11-20T08:01:00Z"}
    first = {names.ATTEMPT: "1"}
    workers = [a_worker(index, "n1", annotations=first, status=running) for index in range(2)]
    begins = a_worker(2, "n2", annotations=first, phase="Pending")
    sight = sight_of([node("n1", 4), node("n2", 4)], [*workers, begins, pod("waits", 1)])
    sighted = BackendReports({}, PodAttempts(sight))
    tasks = sighted.attempt(GANG, 1).tasks
    assert [(task.index, task.node, task.state, str(task.at)) for task in tasks] == [
        (0, "n1", "running", "2026-11-20T08:01:00Z"),
        (1, "n1", "running", "2026-11-20T08:01:00Z"),
        (2, "n2", "starting", "2026-11-20T08:00:00Z"),
    ]
    assert sighted.attempt(GANG, 2).tasks == ()
    assert sighted.attempt(JobName("vision.pod.waits"), 0).tasks == ()
    assert list(sighted.attempts) == [(GANG, 1)]
