"""Starts as bindings: those that a plan wants, and to a round those that are on their way. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from reconciler.kubernetes.binder.intents import Pods, members_of
from reconciler.kubernetes.binder.journal import GangBinding, JournalUnreadableError, PodBinding, StartJournal, read
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.cluster import KubernetesCluster, in_order
from reconciler.kubernetes.objects.device_assignment import slots_of
from reconciler.kubernetes.objects.jobs import SHARING, MemberPod, PodGang
from reconciler.kubernetes.objects.wire import Pod
from solver.model.cluster import Node, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.workload import Job, JobName, TaskPlacement
from solver.plan.plan import Bind, Grow, Nominate, Step

_Task = tuple[str, int]
"""Its group, and its number there."""


def bindings_of(steps: Iterable[Step], gangs: Mapping[JobName, PodGang]) -> tuple[GangBinding, ...]:
    """The bindings of every gang that starts or grows. Raises KeyError for a task that no pod is: the fault is ours."""
    found = []
    for step in steps:
        if isinstance(step, Bind | Grow):
            members = {(one.group, one.task_index): one for one in gangs[step.job].members}
            pods = tuple(_binding(members[task.group, task.index], task) for task in step.tasks)
            job = gangs[step.job].job
            # What joins a gang that runs ends with it, also where those that were there first are gone by then.
            limit = step.time_limit if isinstance(step, Bind) else job.time_limit if job else None
            found.append(GangBinding(step.job, step.attempt, pods, limit))
    return tuple(found)


def as_start(step: Nominate) -> Bind:
    """A promise as if what is promised could be had at once."""
    return Bind(step.job, step.attempt, step.tasks, step.deadline)


def _binding(member: MemberPod, task: TaskPlacement) -> PodBinding:
    devices = tuple(slot.instance.id_on(slot.gpu) for slot in task.slots) if task.mig else task.devices
    return PodBinding(
        member.namespace,
        member.name,
        member.uid,
        member.resource_version,
        task.node,
        devices,
        None if task.mig else task.share,
        task.sharing,
        member.needs,
    )


def starts_of(
    cluster: KubernetesCluster, pods: Pods, deadline: Duration, now: Instant, remembered: Iterable[StartJournal] = ()
) -> Iterator[Intent]:
    """Of every gang that holds nodes and does not run yet, where all of it will be; of one that runs, what joins it.

    It is to run `deadline` after the newest of its pods came, or was bound: a pod that takes the place of one that is gone has as
    long as the first. Of what joins, each pod has so long for itself, and those that took longer are told apart: they alone leave.
    `remembered`: starts that this process has begun and goes on with, also where the pod that said so is gone.
    """
    nodes, begun = cluster.index.nodes, defaultdict[JobName, list[StartJournal]](list)
    for journal in remembered:
        begun[journal.job].append(journal)
    for gang in in_order(cluster.index.open):
        job = gang.job
        if job is None:
            continue
        there = dict(members_of(gang, pods))
        if job.phase != "starting":
            yield from _growth_of(job, there, _coming(there, nodes, begun[job.name]), now, deadline)
            continue
        at = max(_came_at(pod, job.submitted_at) for pod in there.values())
        placed = {(task.group, task.index): task for task in job.placement}
        coming = _coming(there, nodes, begun[job.name])
        tasks = tuple(task for _, task in sorted((coming | placed).items()))
        yield Intent("start", job.name, job.attempt, at, at.after(deadline), tasks)


def _growth_of(
    job: Job, there: Mapping[MemberPod, Pod], coming: Mapping[_Task, TaskPlacement], now: Instant, deadline: Duration
) -> Iterator[Intent]:
    """What was bound and has not begun, or is about to be bound: those alone that took too long, if there are any."""
    placed = {**coming, **{(task.group, task.index): task for task in job.placement}}
    joining = {
        (one.group, one.task_index): _came_at(pod, job.submitted_at)
        for one, pod in there.items()
        if pod.status.phase == "Pending" and (one.group, one.task_index) in placed
    }
    late = {task: at for task, at in joining.items() if at.after(deadline) <= now}
    if due := late or joining:
        at = min(due.values())
        tasks = tuple(placed[task] for task in sorted(due))
        yield Intent("grow", job.name, job.attempt, at, at.after(deadline), tasks)


def _coming(
    there: Mapping[MemberPod, Pod], nodes: Mapping[NodeName, Node], begun: Iterable[StartJournal]
) -> dict[_Task, TaskPlacement]:
    """What the journal on the gang's first pod says of those that are not bound yet, and what is known of it besides."""
    planned = {one.name: one for journal in begun for one in journal.pods}
    for pod in there.values():
        text = pod.metadata.annotations.get(names.GANG_PLAN)
        if text and pod.holds:
            try:
                planned |= {one.name: one for one in read(text).pods}
            except JournalUnreadableError:
                continue  # what finishes or releases the gang says so: partial_starts.py
    waiting = [(member, planned[pod.metadata.name]) for member, pod in there.items() if pod.metadata.name in planned]
    return {
        (member.group, member.task_index): _placement(member, binding, nodes[binding.node])
        for member, binding in waiting
        if binding.node in nodes
    }


def _placement(member: MemberPod, binding: PodBinding, node: Node) -> TaskPlacement:
    slots = slots_of(node, binding.devices)
    if slots:
        return TaskPlacement(member.group, member.task_index, node.name, mig=slots[0], mig_beside=slots[1:])
    sharing = SHARING.get(binding.sharing or "")
    return TaskPlacement(member.group, member.task_index, node.name, binding.devices, binding.share, sharing)


def _came_at(pod: Pod, otherwise: Instant) -> Instant:
    """When it was bound, as the API server has noted, or its kubelet began it; of one that is not, when it was made."""
    noted = next((known for known in pod.status.conditions if known.type == "PodScheduled"), None)
    if noted and noted.status == "True" and noted.last_transition_time:
        return Instant.parse(noted.last_transition_time)
    told = pod.status.start_time if pod.spec.node_name else pod.metadata.creation_timestamp
    return Instant.parse(told) if told else otherwise
