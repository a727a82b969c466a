"""How many pods the controllers make that people use for gangs: read from their objects, as far as pods do not say it.

batch/v1 Job, JobSet, LeaderWorkerSet, Kubeflow's training jobs (PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob), MPIJob, and
RayCluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.object_kinds import ObjectKind, read_as
from reconciler.kubernetes.objects.podgroups import Source
from reconciler.kubernetes.objects.pods import label_priority, queue_of
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Meta, Wire


class Stage(NamedTuple):
    """Roles whose pods are made together. `after`: once what they are made, in words; "": at once."""

    roles: tuple[str, ...]
    after: str = ""


class Controller(NamedTuple):
    """What an object that makes pods says. `roles`: how many pods of each there are to be, and the least it does with.

    `stages`: where it makes pods of some roles only once others run or have ended, all of its roles, in that order; else ().
    `required`, `preferred`: labels of nodes, all pods in one domain of which. `alone`: its pods are each of their own.
    `created`: when all of its pods were asked for; "" where it makes some only as others end.
    """

    source: Source
    namespace: str
    name: str
    roles: tuple[tuple[str, int, int], ...]
    queue: str = ""
    priority_class: str = ""
    stages: tuple[Stage, ...] = ()
    required: str = ""
    preferred: str = ""
    alone: bool = False
    created: str = ""

    def stage_of(self, role: str) -> int | None:
        """The number of the stage that makes this role's pods; None: it makes none."""
        return next((number for number, stage in enumerate(self.stages) if role in stage.roles), None)

    def of_stage(self, number: int) -> Controller:
        """What it says of one stage alone, and of those after it."""
        roles = self.stages[number].roles
        return self._replace(roles=tuple(one for one in self.roles if one[0] in roles), stages=self.stages[number:])


class _Job(Wire, frozen=True):
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"


class _Template(Wire, frozen=True):
    spec: _Job = _Job()


class _DependsOn(Wire, frozen=True):
    name: str
    status: str = "Ready"


class _ReplicatedJob(Wire, frozen=True):
    name: str
    replicas: int = 1
    template: _Template = _Template()
    depends_on: tuple[_DependsOn, ...] = ()


class _Startup(Wire, frozen=True):
    startup_policy_order: str = "AnyOrder"


class _JobSet(Wire, frozen=True):
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()
    startup_policy: _Startup | None = None


class _Group(Wire, frozen=True):
    size: int = 1


class _LeaderWorkerSet(Wire, frozen=True):
    startup_policy: str = "LeaderCreated"
    leader_worker_template: _Group = _Group()


class _Replicas(Wire, frozen=True):
    replicas: int = 1


class _Workers(Wire, frozen=True):
    group_name: str
    replicas: int = 0
    min_replicas: int = 0
    num_of_hosts: int = 1


class _Ray(Wire, frozen=True):
    worker_group_specs: tuple[_Workers, ...] = ()
    enable_in_tree_autoscaling: bool = False


class _ElasticPolicy(Wire, frozen=True):
    """Of a PyTorchJob: with how few workers it goes on."""

    min_replicas: int | None = None


class _Kubeflow(Wire, frozen=True):
    """Each kind has its roles under a name of its own."""

    pytorch_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    tf_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    xgb_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    paddle_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    jax_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    mpi_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    launcher_creation_policy: str = ""
    elastic_policy: _ElasticPolicy | None = None


LAUNCHER: Final = "launcher"


def controller_of(sent: bytes | Mapping[str, Any]) -> Controller:
    """What it says; raises msgspec.ValidationError, and ValueError for a kind that is not known."""
    return read_as(CONTROLLERS, sent, "controller whose pods are understood")


def _controller(source: Source, meta: Meta, roles: tuple[tuple[str, int, int], ...]) -> Controller:
    created = meta.creation_timestamp or ""
    required, preferred = (names.label_or_annotation(meta, key) for key in (names.KAI_REQUIRED, names.KAI_PREFERRED))
    return Controller(
        source=source,
        namespace=meta.namespace,
        name=meta.name,
        roles=roles,
        queue=queue_of(meta),
        priority_class=label_priority(meta),
        required=required,
        preferred=preferred,
        created=created,
    )


def _job(meta: Meta, job: _Job) -> Controller:
    found = _controller("job", meta, (("", _pods(job), _pods(job)),))
    created = found.created if job.completions is None or job.completions <= job.parallelism else ""
    return found._replace(alone=job.completion_mode != "Indexed", created=created)


def _kubeflow(meta: Meta, spec: _Kubeflow) -> Controller:
    roles = (
        spec.pytorch_replica_specs
        | spec.tf_replica_specs
        | spec.xgb_replica_specs
        | spec.paddle_replica_specs
        | spec.jax_replica_specs
        | spec.mpi_replica_specs
    )
    counted = tuple((role.lower(), known.replicas, _fewest(role, known, spec)) for role, known in sorted(roles.items()))
    others = tuple(role for role, _, _ in counted if role != LAUNCHER)
    in_turn = spec.launcher_creation_policy == "WaitForWorkersReady" and 0 < len(others) < len(counted)
    stages = (Stage(others), Stage((LAUNCHER,), f"{' and '.join(others)} is Ready")) if in_turn else ()
    return _controller("kubeflow", meta, counted)._replace(stages=stages)


def _fewest(role: str, known: _Replicas, spec: _Kubeflow) -> int:
    least = spec.elastic_policy.min_replicas if spec.elastic_policy else None
    return min(known.replicas, max(1, least)) if least is not None and role == "Worker" else known.replicas


def _pods(job: _Job) -> int:
    return job.parallelism if job.completions is None else min(job.parallelism, job.completions)


def _jobset(meta: Meta, spec: _JobSet) -> Controller:
    counts = [(job.name, job.replicas * _pods(job.template.spec)) for job in spec.replicated_jobs]
    roles = tuple((name, count, count) for name, count in sorted(counts))
    return _controller("jobset", meta, roles)._replace(stages=_stages(spec))


def _stages(spec: _JobSet) -> tuple[Stage, ...]:
    """Its ReplicatedJobs by what is to be before they are made; what waits for the same is made together."""
    jobs = spec.replicated_jobs
    if spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder":
        after = ["", *(f"{job.name} is Ready" for job in jobs)]
        return tuple(Stage((job.name,), after[number]) for number, job in enumerate(jobs)) if len(jobs) > 1 else ()
    together: dict[str, list[str]] = {}
    for job in jobs:
        said = " and ".join(sorted(f"{one.name} is {one.status}" for one in job.depends_on))
        together.setdefault(said, []).append(job.name)
    found = tuple(Stage(tuple(sorted(made)), said) for said, made in together.items())
    return found if len(found) > 1 else ()


def _leader_worker_set(meta: Meta, spec: _LeaderWorkerSet) -> Controller:
    """Of one of its groups: each is a gang."""
    workers = spec.leader_worker_template.size - 1
    roles = ((names.LEADER_ROLE, 1, 1), *(((names.WORKER_ROLE, workers, workers),) if workers > 0 else ()))
    stages = (Stage((names.LEADER_ROLE,)), Stage((names.WORKER_ROLE,), "the leader is Ready"))
    in_turn = spec.startup_policy == "LeaderReady" and workers > 0
    return _controller("lws", meta, roles)._replace(stages=stages if in_turn else ())


def _ray(meta: Meta, spec: _Ray) -> Controller:
    elastic = spec.enable_in_tree_autoscaling
    workers = (
        (
            group.group_name,
            group.replicas * group.num_of_hosts,
            (group.min_replicas if elastic else group.replicas) * group.num_of_hosts,
        )
        for group in spec.worker_group_specs
    )
    return _controller("ray", meta, (("headgroup", 1, 1), *sorted(workers)))


def _of_kubeflow(name: str, plural: str, *versions: str) -> ObjectKind[_Kubeflow, Controller]:
    return ObjectKind(
        name, tuple(Resource(f"kubeflow.org/{version}", plural) for version in versions), _Kubeflow, _kubeflow
    )


CONTROLLERS: Final[tuple[ObjectKind[Any, Controller], ...]] = (
    ObjectKind("Job", (Resource("batch/v1", "jobs"),), _Job, _job),
    ObjectKind("JobSet", (Resource("jobset.x-k8s.io/v1alpha2", "jobsets"),), _JobSet, _jobset),
    ObjectKind(
        "LeaderWorkerSet",
        (Resource("leaderworkerset.x-k8s.io/v1", "leaderworkersets"),),
        _LeaderWorkerSet,
        _leader_worker_set,
    ),
    ObjectKind(
        "RayCluster", (Resource("ray.io/v1", "rayclusters"), Resource("ray.io/v1alpha1", "rayclusters")), _Ray, _ray
    ),
    _of_kubeflow("PyTorchJob", "pytorchjobs", "v1"),
    _of_kubeflow("TFJob", "tfjobs", "v1"),
    _of_kubeflow("XGBoostJob", "xgboostjobs", "v1"),
    _of_kubeflow("PaddleJob", "paddlejobs", "v1"),
    _of_kubeflow("JAXJob", "jaxjobs", "v1"),
    _of_kubeflow("MPIJob", "mpijobs", "v2beta1", "v1"),
)
"""The kinds whose pods are understood."""
