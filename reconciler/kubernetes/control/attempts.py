"""How the pods of gangs stand, for callers that ask about one: nothing in a pass needs it, and a cluster has thousands of gangs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.objects.jobs import MemberPod, PodGang
from reconciler.kubernetes.objects.wire import Pod
from reconciler.lifecycle.jobs.backend_reports import AttemptReport
from reconciler.protocols.backend import AttemptKey, TaskState, TaskStatus
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.workload import Job

_STATES: Final[Mapping[str, TaskState]] = {
    "Pending": "starting",
    "Running": "running",
    "Succeeded": "succeeded",
    "Failed": "failed",
}
"""By phase of a pod; of any other nothing is known."""


class PodAttempts(Mapping[AttemptKey, AttemptReport]):
    """The attempts that hold nodes in one look, each worked out when it is asked for."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight

    def __getitem__(self, key: AttemptKey) -> AttemptReport:
        """How the tasks of an attempt stand, those that are on nodes. Raises KeyError."""
        gang, job = self._gangs[key]
        pods = ((member, self._sight.pods.get((member.namespace, member.name))) for member in gang.members)
        return AttemptReport(tuple(_status(job, member, pod) for member, pod in pods if pod and pod.spec.node_name))

    def __iter__(self) -> Iterator[AttemptKey]:
        """All of them."""
        return iter(self._gangs)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._gangs)

    @cached_property
    def _gangs(self) -> dict[AttemptKey, tuple[PodGang, Job]]:
        gangs = ((gang, gang.job) for gang in self._sight.cluster.gangs)
        return {(job.name, job.attempt): (gang, job) for gang, job in gangs if job is not None and job.placement}


def _status(job: Job, member: MemberPod, pod: Pod) -> TaskStatus:
    state = _STATES.get(pod.status.phase, "lost")
    since = pod.status.start_time
    at = Instant.parse(since) if since else job.submitted_at
    node = NodeName(pod.spec.node_name)
    return TaskStatus(job.name, job.attempt, member.group, member.task_index, node, state, at)
