"""What became of bindings: by the answer, by the error, or by the pod itself where neither says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from reconciler.kubernetes.binder.journal import GangBinding, PodBinding, is_there
from reconciler.kubernetes.client.refusals import (
    ConflictError,
    KubernetesError,
    NotFoundError,
    RefusedError,
    TooManyRequestsError,
    UnreachableError,
    UnreadableError,
)
from reconciler.kubernetes.objects.wire import Pod
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.ledger import NotLeaderError

Failure = Literal["gone", "conflict", "stale-leader", "refused", "unsent", "unknown"]
Answer = Literal["bound"] | Failure
"""What became of a binding. `gone`: this pod is no more, or is leaving. `conflict`: it is bound otherwise. `stale-leader`: we do
not lead, as the fence says or our own clock. `refused`: a person has to act. `unsent`: nothing was done. `unknown`: look later."""

FENCE = "quorate-fence"
"""What the names of the policies begin with whose refusals mean that another leads; deploy/kubernetes/fence.yaml."""


class PodOutcome(NamedTuple):
    """What became of one pod's binding; `why` in words, where it is not bound."""

    pod: PodBinding
    answer: Answer
    why: str = ""


class GangOutcome(NamedTuple):
    """What became of a gang, its pods in the order of the gang."""

    gang: GangBinding
    pods: tuple[PodOutcome, ...]

    @property
    def is_whole(self) -> bool:
        """Whether all of it is bound."""
        return all(pod.answer == "bound" for pod in self.pods)


def binding_outcome(pod: PodBinding, said: Mapping[str, str], seen: Pod) -> PodOutcome | PodBinding:
    """What became of a binding whose answer does not say it, by the pod as it is; a binding: nothing yet, try again so."""
    meta = seen.metadata
    if meta.uid != pod.uid:
        return PodOutcome(pod, "gone", "another pod has its name")
    if meta.deletion_timestamp:
        return PodOutcome(pod, "gone", "it is being deleted")
    if not seen.spec.node_name:
        return pod._replace(resource_version=meta.resource_version)
    if is_there(seen, pod, said):
        return PodOutcome(pod, "bound")
    return PodOutcome(pod, "conflict", f"it is bound to {seen.spec.node_name}, with other devices or by others")


def failure_of(error: KubernetesError | NotLeaderError | StaleEpochError) -> Failure:
    """What an error says became of a write under the fence."""
    match error:
        case NotLeaderError() | StaleEpochError():
            return "stale-leader"
        # 403 where another leads, 422 where there is no Lease.
        case RefusedError() if FENCE in error.message:
            return "stale-leader"
        case NotFoundError():
            return "gone"
        case ConflictError():
            return "conflict"
        case UnreadableError():
            return "unknown"
        case UnreachableError():
            return "unknown" if error.sent else "unsent"
        case TooManyRequestsError():
            return "unsent"
        case _:
            return "refused"
