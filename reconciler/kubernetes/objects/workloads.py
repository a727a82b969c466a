"""Kueue's Workloads: jobs that are suspended until they are admitted, and the pods that they would have.

Kueue's integrations make a Workload of each job that names a LocalQueue, and end its suspension once the Workload says that it is
admitted. Of those whose pods name Quorate it is Quorate that admits. Until the pods are there, pods that stand for them are one
gang of a round: what they ask for is what the Workload's templates say.

Written against kueue.x-k8s.io/v1beta2 of Kueue 0.17 (apis/kueue/v1beta2/workload_types.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.membership import GangKey
from reconciler.kubernetes.objects.podgroups import Source
from reconciler.kubernetes.objects.remarks import Refusal
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import KubeCondition, Labels, Meta, Pod, PodSpec, Wire

WORKLOADS: Final = tuple(Resource(f"kueue.x-k8s.io/{version}", "workloads") for version in ("v1beta2", "v1beta1"))
_STANDS_FOR: Final = ":"
"""In the name of a pod that stands for one; no object of Kubernetes has it in its name."""
_MAKERS: Final[Mapping[str, Source]] = {
    "Job": "job",
    "JobSet": "jobset",
    "TrainJob": "jobset",
    "RayCluster": "ray",
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob"), "kubeflow"),
}
"""The kinds whose pods are known for theirs by the name of the object; a TrainJob's JobSet is called as it is."""
_REPLACES: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
_CLASSES_OF_KUEUE: Final = ("kueue.x-k8s.io", "kueue.x-k8s.io/workloadpriorityclass")


class _TemplateMeta(Wire, frozen=True):
    labels: Labels = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    annotations: Labels = {}  # noqa: RUF012


class PodTemplate(Wire, frozen=True):
    """What pods are made from."""

    spec: PodSpec
    metadata: _TemplateMeta = _TemplateMeta()


class PodSet(Wire, frozen=True):
    """Pods that are alike. `min_count`: with how few of them the job starts; None: with all."""

    name: str
    template: PodTemplate
    count: int = 1
    min_count: int | None = None


class ClassRef(Wire, frozen=True):
    """A priority class: of Kueue (`kueue.x-k8s.io`) or of Kubernetes."""

    group: str = ""
    name: str = ""


class WorkloadSpec(Wire, frozen=True):
    """What is asked for. `priority_class_name` and `priority_class_source` are what v1beta1 has in place of the reference."""

    pod_sets: tuple[PodSet, ...] = ()
    queue_name: str = ""
    active: bool = True
    priority_class_ref: ClassRef | None = None
    priority_class_name: str = ""
    priority_class_source: str = ""
    maximum_execution_time_seconds: int | None = None
    preemption_gates: tuple[dict[str, Any], ...] = ()


class PodSetAssignment(Wire, frozen=True):
    """How many pods of a set are admitted."""

    name: str
    count: int | None = None


class WorkloadAdmission(Wire, frozen=True):
    """What is admitted."""

    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class RequeueState(Wire, frozen=True):
    """Until when Kueue keeps it from being admitted once more."""

    requeue_at: str | None = None


class WorkloadStatus(Wire, frozen=True):
    """How it stands."""

    conditions: tuple[KubeCondition, ...] = ()
    admission: WorkloadAdmission | None = None
    requeue_state: RequeueState | None = None
    admission_checks: tuple[dict[str, Any], ...] = ()
    nominated_cluster_names: tuple[str, ...] = ()


class Workload(Wire, frozen=True):
    """A job as Kueue admits it."""

    metadata: Meta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.metadata.namespace, self.metadata.name

    @property
    def is_ours(self) -> bool:
        """Some of its pods name Quorate. Where not all do, it is refused, and left to nobody else: Kueue's queue is on hold."""
        return any(one.template.spec.scheduler_name == names.SCHEDULER for one in self.spec.pod_sets)

    @property
    def is_reserved(self) -> bool:
        """It is admitted, or about to be, and not told to stop."""
        return self._is("QuotaReserved") and not self._is("Evicted")

    @property
    def may_run(self) -> bool:
        """Nothing keeps it from being admitted, or it is: Kueue itself tells what does."""
        if self._is("Finished") or self.metadata.deletion_timestamp or not self.spec.active:
            return False
        if self.is_reserved:
            return True
        requeued = next((one.status for one in self.status.conditions if one.type == "Requeued"), "True")
        rests = self.status.requeue_state is not None and self.status.requeue_state.requeue_at is not None
        return not (self._is("QuotaReserved") or rests or requeued == "False")

    def _is(self, condition: str) -> bool:
        return any(one.type == condition and one.status == "True" for one in self.status.conditions)

    @property
    def made_by(self) -> GangKey | None:
        """The gang that its pods will be; None: of a kind whose pods are not known for its own."""
        owner = next((one for one in self.metadata.owner_references if one.controller), None)
        source = _MAKERS.get(owner.kind) if owner else None
        return GangKey(self.metadata.namespace, source, owner.name) if owner and source else None

    @property
    def maker(self) -> str:
        """The kind of what it was made for."""
        return next((one.kind for one in self.metadata.owner_references if one.controller), "nothing")


class StandIn(NamedTuple):
    """What a member of a gang stands for: a pod set of a Workload."""

    workload: str
    pod_set: str


def stand_in(pod: str) -> StandIn | None:
    """By the name of a pod; None: it is one that is there."""
    workload, is_one, rest = pod.partition(_STANDS_FOR)
    return StandIn(workload, rest.rpartition(_STANDS_FOR)[0]) if is_one else None


def stand_ins(workload: Workload) -> dict[tuple[str, str], Pod]:
    """The pods that it would have, as a gang that is called after it; none where it may not run now."""
    if not (workload.is_ours and workload.may_run):
        return {}
    refusal = next(_refusals(workload), None)
    counts = _counts(workload)
    least = _least(workload, counts)
    made = (
        _pod(workload, pod_set, number, least, refusal)
        for pod_set in workload.spec.pod_sets
        for number in range(counts[pod_set.name])
    )
    return {pod.key: pod for pod in made}


def _counts(workload: Workload) -> dict[str, int]:
    counts = {one.name: one.count for one in workload.spec.pod_sets}
    if workload.is_reserved and workload.status.admission:
        admitted = workload.status.admission.pod_set_assignments
        counts |= {one.name: one.count for one in admitted if one.count is not None and one.name in counts}
    return counts


def _least(workload: Workload, counts: Mapping[str, int]) -> int:
    """With how few pods it starts. Of several sets Kueue lets one say so; all of the others are needed."""
    if workload.is_reserved:
        return sum(counts.values())
    return sum(counts[one.name] if one.min_count is None else one.min_count for one in workload.spec.pod_sets)


def _refusals(workload: Workload) -> Iterator[Refusal]:
    specs = [one.template.spec for one in workload.spec.pod_sets]
    if any(spec.scheduler_name != names.SCHEDULER for spec in specs):
        message = f"some of its pod sets name schedulerName: {names.SCHEDULER}, others do not"
        yield Refusal("workload-schedulers", message, "Let all of them name the same.")
    if workload.made_by is None:
        message = f"it was made for {workload.maker}, of whose pods it can't be told whose they are"
        yield Refusal("workload-kind", message, f"Let Kueue admit it, and its pods name no {names.SCHEDULER}.")
    if workload.status.admission_checks:
        message = "its ClusterQueue has admission checks, which Kueue makes only of what it admits itself"
        yield Refusal("workload-checks", message, "Drop the admissionChecks of the ClusterQueue.")
    if workload.spec.preemption_gates or workload.status.nominated_cluster_names:
        yield Refusal(
            "workload-clusters", "it may be sent to other clusters, which is not done here", "Use a queue of here."
        )
    if _REPLACES in workload.metadata.annotations:
        message = "it takes the place of a slice of an elastic job"
        yield Refusal("workload-slices", message, "Drop the annotation kueue.x-k8s.io/elastic-job.")
    if any(spec.resource_claims for spec in specs):
        message = "its pods ask for devices by ResourceClaims, which are made with the pods"
        yield Refusal("workload-claims", message, f"Ask for {names.GPU}, or let the job name no LocalQueue.")


def _pod(workload: Workload, pod_set: PodSet, number: int, least: int, refusal: Refusal | None) -> Pod:
    meta, said = workload.metadata, pod_set.template.metadata
    labels = {
        names.KUEUE_QUEUE: workload.spec.queue_name,
        **_class_of(workload.spec),
        **_limit_of(workload.spec),
        **said.labels,
        names.KUEUE_GROUP: meta.name,
    }
    name = f"{meta.name}{_STANDS_FOR}{pod_set.name}{_STANDS_FOR}{number}"
    ours = {names.GANG_SIZE: str(least), names.ROLE: said.labels.get(names.ROLE) or pod_set.name}
    spec = pod_set.template.spec
    # Volumes that are made with the pods can't be looked for yet.
    there = tuple(volume for volume in spec.volumes if volume.persistent_volume_claim is not None)
    unmet = tuple(refusal) if refusal else None
    return Pod(
        Meta(
            name,
            meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp,
            labels={key: value for key, value in labels.items() if value and key not in _OTHER_GANGS},
            annotations={**{key: value for key, value in said.annotations.items() if key not in _OTHER_GANGS}, **ours},
        ),
        msgspec.structs.replace(spec, volumes=there, node_name="", unmet_claims=unmet, resource_claims=()),
    )


_OTHER_GANGS: Final = frozenset(
    {
        names.GANG, *names.VOLCANO_GROUP, names.KAI_GROUP, names.COSCHEDULING_GROUP, names.LIGHTWEIGHT_GROUP,
        names.LIGHTWEIGHT_LEAST, names.JOBSET_NAME, names.KUBEFLOW_NAME, names.LWS_NAME,
    }
)  # fmt: skip
"""By what templates name another gang: what is admitted is all that the Workload has."""


def _class_of(spec: WorkloadSpec) -> Labels:
    ref = spec.priority_class_ref
    group, name = (ref.group, ref.name) if ref else (spec.priority_class_source, spec.priority_class_name)
    return {names.KUEUE_PRIORITY: name} if group in _CLASSES_OF_KUEUE else {}


def _limit_of(spec: WorkloadSpec) -> Labels:
    seconds = spec.maximum_execution_time_seconds
    return {} if seconds is None else {names.KUEUE_SECONDS: str(seconds)}
