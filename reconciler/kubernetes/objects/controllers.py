"""How many pods the controllers make that people use for gangs: read from their objects, as far as pods do not say it.

batch/v1 Job, JobSet, Kubeflow's training jobs (PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob), MPIJob, RayCluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from reconciler.kubernetes.objects.object_kinds import ObjectKind, read_as
from reconciler.kubernetes.objects.podgroups import Source
from reconciler.kubernetes.objects.pods import label_priority, queue_of
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Meta, Named, Wire


class Controller(NamedTuple):
    """What an object that makes pods says. `roles`: how many pods of each there are to be, and the least it does with.

    `in_turn`: it makes some of them only once others run, so they can't all be waited for. `alone`: its pods are each of their own.
    `created`: when all of its pods were asked for; "" where it makes some only as others end.
    """

    source: Source
    namespace: str
    name: str
    roles: tuple[tuple[str, int, int], ...]
    queue: str = ""
    priority_class: str = ""
    in_turn: bool = False
    alone: bool = False
    created: str = ""


class _Job(Wire, frozen=True):
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"


class _Template(Wire, frozen=True):
    spec: _Job = _Job()


class _ReplicatedJob(Wire, frozen=True):
    name: str
    replicas: int = 1
    template: _Template = _Template()
    depends_on: tuple[Named, ...] = ()


class _Startup(Wire, frozen=True):
    startup_policy_order: str = "AnyOrder"


class _JobSet(Wire, frozen=True):
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()
    startup_policy: _Startup | None = None


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


class _Kubeflow(Wire, frozen=True):
    """Each kind has its roles under a name of its own."""

    pytorch_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    tf_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    xgb_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    paddle_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    jax_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    mpi_replica_specs: dict[str, _Replicas] = {}  # noqa: RUF012
    launcher_creation_policy: str = ""


def controller_of(sent: bytes | Mapping[str, Any]) -> Controller:
    """What it says; raises msgspec.ValidationError, and ValueError for a kind that is not known."""
    return read_as(CONTROLLERS, sent, "controller whose pods are understood")


def _controller(source: Source, meta: Meta, roles: tuple[tuple[str, int, int], ...]) -> Controller:
    created = meta.creation_timestamp or ""
    return Controller(source, meta.namespace, meta.name, roles, queue_of(meta), label_priority(meta), created=created)


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
    counted = tuple((role.lower(), known.replicas, known.replicas) for role, known in sorted(roles.items()))
    return _controller("kubeflow", meta, counted)._replace(
        in_turn=spec.launcher_creation_policy == "WaitForWorkersReady"
    )


def _pods(job: _Job) -> int:
    return job.parallelism if job.completions is None else min(job.parallelism, job.completions)


def _jobset(meta: Meta, spec: _JobSet) -> Controller:
    counts = [(job.name, job.replicas * _pods(job.template.spec)) for job in spec.replicated_jobs]
    ordered = spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder"
    in_turn = len(counts) > 1 and (ordered or any(job.depends_on for job in spec.replicated_jobs))
    roles = tuple((name, count, count) for name, count in sorted(counts))
    return _controller("jobset", meta, roles)._replace(in_turn=in_turn)


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
