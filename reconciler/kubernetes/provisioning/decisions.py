"""Which nodes are asked for, which requests are taken back, and what is kept for whom: from objects, verdicts and policy. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.wire import KubeNode
from reconciler.kubernetes.provisioning.requests import ProvisioningRequest, RequestStanding, standing_of
from solver.model.cluster import GpuType, Node, NodeName
from solver.model.document import digest
from solver.model.node_sets import NodeSet
from solver.model.quantities import Duration, Instant
from solver.model.workload import Job, JobName
from solver.plan.reason import count
from solver.policy.node_requests import Provisioning
from solver.policy.reservation import DeclaredReservation

HELD = "provisioned."
"""So begin the names of what is kept for jobs that asked for nodes."""


_NO_END = Duration(400 * 86_400_000)
"""To rounds what is kept has no end, which passes see to: an end would be one from which another job has the nodes reserved, and
the job that they came for could not be there any longer."""


class Asking(NamedTuple):
    """Nodes are to be asked for: by one pod set for each (pod, number of pods like it). `nodes`: how many it is taken to be."""

    job: JobName
    namespace: str
    pods: tuple[tuple[str, int], ...]
    wants: str
    tries: int
    nodes: int


class TakingBack(NamedTuple):
    """A request is to go, since nothing more is to come of it."""

    request: ProvisioningRequest
    why: str


class Requested(NamedTuple):
    """What is to be done about requests, and why nodes are not asked for though a job waits for some."""

    asked: tuple[Asking, ...] = ()
    taken_back: tuple[TakingBack, ...] = ()
    bounded: tuple[tuple[JobName, str], ...] = ()


def standings(
    requests: Iterable[ProvisioningRequest], rules: Provisioning, now: Instant
) -> tuple[RequestStanding, ...]:
    """How far each request of Quorate has come, those that were made first before the others."""
    ours = (standing_of(known, rules, now) for known in requests if known.is_ours)
    return tuple(sorted(ours, key=lambda one: (one.request.made_at, one.name)))


def without_rules(requests: Iterable[ProvisioningRequest]) -> Requested:
    """Where policy lets nothing be asked for: what was is taken back."""
    ours = [known for known in requests if known.is_ours and not known.metadata.deletion_timestamp]
    return Requested(taken_back=tuple(TakingBack(known, "policy asks for no nodes") for known in ours))


def decided(
    known: Sequence[RequestStanding],
    cluster: KubernetesCluster,
    wait_for_nodes: Mapping[JobName, bool],
    rules: Provisioning,
    now: Instant,
) -> Requested:
    """What is to be done. `wait_for_nodes`: of jobs that wait, whether it is for nothing but nodes.

    A job of which this round says nothing is left as it is.
    """
    gangs = cluster.index.gangs
    there = [one for one in known if not one.request.metadata.deletion_timestamp]
    going = [taken for one in there if (taken := _taken_back(one, gangs, wait_for_nodes, rules, now))]
    gone = {taken.request.metadata.uid for taken in going}
    staying = [one for one in there if one.request.metadata.uid not in gone]
    has_one = {one.request.job for one in staying}
    tries = {taken.request.job: taken.request.tries for taken in going if taken.why == _AGAIN}
    live, nodes = sum(one.is_open for one in staying), sum(one.request.nodes for one in staying if one.is_open)
    asked, bounded = list[Asking](), list[tuple[JobName, str]]()
    for job in _wanting(cluster, wait_for_nodes, has_one, rules, now):
        asking = _asking(gangs[job.name], job, cluster, tries.get(job.name, 0) + 1)
        if live >= rules.max_requests:
            bounded.append((job.name, f"{count(live, 'request')} of maxRequests {rules.max_requests} are open"))
        elif nodes + asking.nodes > rules.max_nodes:
            more = f"{count(asking.nodes, 'node')} more than {nodes} that are asked for"
            bounded.append((job.name, f"it takes {more}, and maxNodes is {rules.max_nodes}"))
        else:
            asked.append(asking)
            live, nodes = live + 1, nodes + asking.nodes
    return Requested(tuple(asked), tuple(going), tuple(bounded))


_AGAIN = "it is made again"


def _taken_back(
    one: RequestStanding,
    gangs: Mapping[JobName, PodGang],
    wait_for_nodes: Mapping[JobName, bool],
    rules: Provisioning,
    now: Instant,
) -> TakingBack | None:
    request = one.request
    gang = gangs.get(request.job)
    if gang is None:
        return TakingBack(request, "its job is gone")
    if gang.job is None:
        return None  # some of its pods are not there yet, or again
    if gang.job.placement:
        return TakingBack(request, "its job has started")
    if wants_of(gang.job) != request.wants:
        return TakingBack(request, "its job asks for something else")
    if one.stage == "over":
        return TakingBack(request, _AGAIN) if now >= one.again_at(rules) else None
    if one.stage != "provisioned" and not wait_for_nodes.get(request.job, True):
        return TakingBack(request, "its job waits for something else than nodes")
    return None


def _wanting(
    cluster: KubernetesCluster,
    wait_for_nodes: Mapping[JobName, bool],
    has_one: set[JobName],
    rules: Provisioning,
    now: Instant,
) -> Iterator[Job]:
    """The jobs that nodes are to be asked for, those that came first before the others."""
    jobs = cluster.index.jobs
    found = [jobs[name] for name, is_so in wait_for_nodes.items() if is_so and name in jobs and name not in has_one]
    for job in sorted(found, key=lambda job: (job.submitted_at, job.name)):
        if not job.placement and job.submitted_at.after(rules.after) <= now:
            yield job


def _asking(gang: PodGang, job: Job, cluster: KubernetesCluster, tries: int) -> Asking:
    first = {one.group: one for one in reversed(gang.members)}
    pods = tuple((first[group.name].name, group.least) for group in job.spec.task_groups if group.least)
    return Asking(job.name, gang.members[0].namespace, pods, wants_of(job), tries, nodes_of(job, cluster.nodes))


def wants_of(job: Job) -> str:
    """What a job asks for: names the same for pods that were made anew."""
    return digest([(group.name, group.least, group.shape, group.nodes) for group in job.spec.task_groups])[7:27]


def nodes_of(job: Job, nodes: Iterable[Node]) -> int:
    """How many nodes a job is taken to need: by the largest of its type that there are; else one for each task."""
    found, sizes = 0, dict[GpuType, int]()
    for node in nodes:
        sizes[node.gpu_type] = max(sizes.get(node.gpu_type, 0), len(node.gpus))
    for group in job.spec.task_groups:
        types = group.shape.gpu_types or tuple(sizes)
        largest = max((sizes.get(known, 0) for known in types), default=0)
        each = largest // group.shape.gpus if group.shape.gpus and largest >= group.shape.gpus else 1
        found += -(-group.least // max(1, each))
    return max(1, found)


def holds(
    known: Iterable[RequestStanding],
    cluster: KubernetesCluster,
    wire: Callable[[NodeName], KubeNode | None],
    now: Instant,
) -> Iterator[DeclaredReservation]:
    """What is kept of nodes that came since a request was made, for its job: as many as it needs, and for a while.

    Nothing on a node says for which request it came: the request that was made first has those that came first.
    """
    taken = set[NodeName]()
    for one in known:
        job = cluster.index.jobs.get(one.request.job)
        if not one.is_open or now >= one.until or job is None or job.placement:
            continue
        mine = tuple(_came_for(job, one, cluster, wire, taken))
        taken.update(mine)
        if mine:
            name = f"{HELD}{job.name}"
            nodes = tuple(sorted(mine))
            yield DeclaredReservation(name, one.request.made_at, one.until.after(_NO_END), nodes=nodes, job=job.name)


def _came_for(
    job: Job,
    one: RequestStanding,
    cluster: KubernetesCluster,
    wire: Callable[[NodeName], KubeNode | None],
    taken: set[NodeName],
) -> Iterator[NodeName]:
    """The nodes that came since, may be used by it, and are no more than it needs."""
    came = []
    for node in cluster.nodes:
        sent = wire(node.name)
        made = sent.metadata.creation_timestamp if sent else None
        if made and node.name not in taken and Instant.parse(made) >= one.request.made_at:
            came.append((made, node))
    gpus = sum(group.least * group.shape.gpus for group in job.spec.task_groups)
    left = gpus or max(1, one.request.nodes)
    for _, node in sorted(came, key=lambda one: (one[0], one[1].name)):
        if left > 0 and _may_use(job, node, cluster.node_sets):
            left -= len(node.gpus) if gpus else 1
            yield node.name


def _may_use(job: Job, node: Node, node_sets: Iterable[NodeSet]) -> bool:
    sets = {known.name: known.nodes for known in node_sets}
    return any(
        (not group.nodes or node.name in sets.get(group.nodes, ()))
        and (not group.shape.gpus or (bool(node.gpus) and node.gpu_type in (group.shape.gpu_types or (node.gpu_type,))))
        for group in job.spec.task_groups
    )
