"""How many pods the controllers make that people use for gangs: read from their objects, as far as pods do not say it.

batch/v1 Job, JobSet, Kubeflow's training jobs (PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob), MPIJob, RayCluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from reconciler.backends.kubernetes.objects.podgroups import Source
from reconciler.backends.kubernetes.objects.pods import label_priority, queue_of
from reconciler.backends.kubernetes.objects.wire import Meta, Named, Wire, read


class Controller(NamedTuple):
    """What an object that makes pods says. `roles`: how many pods of each there are to be, and the least it does with.

    `in_turn`: it makes some of them only once others run, so they can't all be waited for. `alone`: its pods are each of their own.
    """

    source: Source
    namespace: str
    name: str
    roles: tuple[tuple[str, int, int], ...]
    queue: str = ""
    priority_class: str = ""
    in_turn: bool = False
    alone: bool = False


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


class _Said(Wire, frozen=True):
    api_version: str
    kind: str
    metadata: Meta
    spec: dict[str, Any] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)


def controller_of(sent: bytes | Mapping[str, Any]) -> Controller:
    """What it says; raises msgspec.ValidationError, and ValueError for a kind that is not known."""
    said = read(sent, _Said)
    found = _by_kind(said)
    return found._replace(queue=queue_of(said.metadata), priority_class=label_priority(said.metadata))


def _by_kind(said: _Said) -> Controller:
    at = said.metadata.namespace, said.metadata.name
    replicas = [field for field in said.spec if field.endswith("ReplicaSpecs")]
    match said.api_version.partition("/")[0], said.kind:
        case "batch", "Job":
            job = read(said.spec, _Job)
            return Controller("job", *at, (("", _pods(job), _pods(job)),), alone=job.completion_mode != "Indexed")
        case "jobset.x-k8s.io", "JobSet":
            return _jobset(at, read(said.spec, _JobSet))
        case "ray.io", "RayCluster":
            return _ray(at, read(said.spec, _Ray))
        case "kubeflow.org", _ if len(replicas) == 1:
            roles = read(said.spec[replicas[0]], dict[str, _Replicas])
            waits = said.spec.get("launcherCreationPolicy") == "WaitForWorkersReady"
            counted = tuple((role.lower(), known.replicas, known.replicas) for role, known in sorted(roles.items()))
            return Controller("kubeflow", *at, counted, in_turn=waits)
        case _:
            raise ValueError(f"{said.kind} of {said.api_version} is no controller whose pods are understood")


def _pods(job: _Job) -> int:
    return job.parallelism if job.completions is None else min(job.parallelism, job.completions)


def _jobset(at: tuple[str, str], spec: _JobSet) -> Controller:
    counts = [(job.name, job.replicas * _pods(job.template.spec)) for job in spec.replicated_jobs]
    ordered = spec.startup_policy is not None and spec.startup_policy.startup_policy_order == "InOrder"
    in_turn = len(counts) > 1 and (ordered or any(job.depends_on for job in spec.replicated_jobs))
    return Controller("jobset", *at, tuple((name, count, count) for name, count in sorted(counts)), in_turn=in_turn)


def _ray(at: tuple[str, str], spec: _Ray) -> Controller:
    elastic = spec.enable_in_tree_autoscaling
    workers = (
        (
            group.group_name,
            group.replicas * group.num_of_hosts,
            (group.min_replicas if elastic else group.replicas) * group.num_of_hosts,
        )
        for group in spec.worker_group_specs
    )
    return Controller("ray", *at, (("headgroup", 1, 1), *sorted(workers)))
