"""Objects that ask for pods of Quorate's which are not made yet, for a reason that no pod can tell: there is none.

A vcjob of Volcano has a PodGroup made, and its pods once a scheduler says in that group's status that they may come (phase
`Inqueue`). Volcano's own scheduler does, for pods of any scheduler. Written against volcano.sh/apis, batch/v1alpha1, and the job
controller of Volcano 1.15.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Meta, Wire

VOLCANO_JOBS: Final = Resource("batch.volcano.sh/v1alpha1", "jobs")
_WAITS: Final = (
    "its pods are made once its PodGroup is Inqueue, which Volcano's scheduler says and Quorate does not: "
    "where that does not run, write a Job, a JobSet, or the pods"
)


class HeldBackObject(NamedTuple):
    """An object whose pods are not made, and why in words."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    why: str


class _Spec(Wire, frozen=True):
    scheduler_name: str = ""


class _State(Wire, frozen=True):
    phase: str = ""


class _Status(Wire, frozen=True):
    state: _State = _State()
    pending: int = 0
    running: int = 0
    succeeded: int = 0


class VolcanoJob(Wire, frozen=True):
    """A vcjob, as far as it says whether its pods are there."""

    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def held_back(self) -> HeldBackObject | None:
        """It is Quorate's, has begun, and has no pods yet; else None."""
        is_ours = self.spec.scheduler_name == names.SCHEDULER
        has_pods = self.status.pending + self.status.running + self.status.succeeded > 0
        if not is_ours or has_pods or self.status.state.phase != "Pending" or self.metadata.deletion_timestamp:
            return None
        meta = self.metadata
        return HeldBackObject(VOLCANO_JOBS.version, "Job", meta.namespace, meta.name, meta.uid, _WAITS)
