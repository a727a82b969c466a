"""A gang as a job of a round: its task groups, what it asks of where they run, and where they run already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.closeness import Kept
from reconciler.kubernetes.objects.constraints import Places, as_types
from reconciler.kubernetes.objects.device_assignment import Held, share_of, slots_of
from reconciler.kubernetes.objects.gang_needs import GangNeeds, needs_on
from reconciler.kubernetes.objects.gangs import InRole, LivePods
from reconciler.kubernetes.objects.limits import began_at, limit_of
from reconciler.kubernetes.objects.pod_affinity import SLICE_KEYS, AffinityRules, Company, as_level
from reconciler.kubernetes.objects.pods import PodTask
from reconciler.kubernetes.objects.remarks import Missing, Refusal, Remark
from reconciler.kubernetes.objects.role_topology import RoleGroup, RoleTopology, role_topology
from reconciler.kubernetes.objects.saves import checkpoint_of, saved_at
from reconciler.kubernetes.objects.units import Part, Units, grouped, numbered
from solver.model.cluster import LEVELS, NodeName
from solver.model.document import encode
from solver.model.node_sets import NodeSet
from solver.model.shape import Shape, SharingMode
from solver.model.workload import (
    Bundle,
    GroupTopology,
    Job,
    JobName,
    JobSpec,
    Phase,
    QueueName,
    Spread,
    TaskGroup,
    TaskPlacement,
    TopologyRequest,
)

SHARING: dict[str, SharingMode] = {"mps": "mps", "time-slicing": "time-slicing"}


class MemberPod(NamedTuple):
    """A pod, and which task of the job it is. `uid` and `resource_version`: what a binding has to name.

    `needs`: with how many it is bound, as it is to say itself.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    group: str
    task_index: int
    needs: str = ""


class PodGang(NamedTuple):
    """A gang and what is to be said of it. `job` None: a round can't be asked about it, for what is `missing` or `refusals`.

    One that holds nodes has its job whatever it is refused for: it is there, and gets no node more; but for one of which it can't
    be said what it holds, or for whom.
    `node_sets`: those that its job's groups name. `outgrown`: its pods that were bound with more than are asked for now.
    """

    name: JobName
    members: tuple[MemberPod, ...]
    bound: int
    job: Job | None
    missing: Missing | None = None
    refusals: tuple[Refusal, ...] = ()
    remarks: tuple[Remark, ...] = ()
    node_sets: tuple[NodeSet, ...] = ()
    outgrown: tuple[MemberPod, ...] = ()


def gang_of(gang: LivePods, places: Places, held: Held) -> PodGang:
    """Everything about one gang."""
    in_units = numbered(parts_of(gang.pods), gang.pods, gang.group.units if gang.group else ())
    parts = in_units.parts
    members = tuple(_members(gang, parts))
    bound, missing, refusals = (
        sum(task.pod.holds for task in gang.tasks),
        _missing(gang, places),
        (*gang.refusals(), *in_units.refusals),
    )
    said = PodGang(gang.key.job, members, bound, None, missing, refusals, tuple(gang.remarks()))
    said = said._replace(outgrown=tuple(_outgrown(gang, parts, members)) if bound else ())
    if (refusals or missing) and not (bound and gang.is_counted):
        return said
    groups, apart, node_sets = _groups(gang, parts, places)
    roles = _roles(gang, parts, apart, places, in_units.units)
    groups = tuple(_kept_as_role(group, roles.groups.get(group.name)) for group in groups)
    groups = tuple(grouped(group, roles.units) for group in groups)
    topology, against, notes = _topology(gang, apart, places)
    topology = msgspec.structs.replace(topology, together=tuple(roles.together))
    against, notes = (*against, *roles.refusals), (*notes, *roles.remarks)
    refusals = tuple(dict.fromkeys((*refusals, *against, *(one for found in apart for one in found.refusals))))
    notes = (*said.remarks, *notes, *(one for found in apart for one in found.remarks), *_least_remark(gang, parts))
    said = said._replace(refusals=refusals, remarks=tuple(dict.fromkeys(notes)))
    if refusals and not bound:
        return said
    if bound and (refusals or gang.is_held_up or in_units.lacks_pods):
        groups, node_sets = _closed(groups, places.nowhere)
    job = _job(gang, groups, topology, _placement(parts, places, held), _phase(parts, groups))
    return said._replace(job=job, node_sets=node_sets)


def _members(gang: LivePods, parts: Sequence[Part]) -> Iterator[MemberPod]:
    for part in parts:
        needs = "" if gang.key.source == "pod" else str(_needs(gang, parts, part.role))
        for index, task in zip(part.indices, part.tasks, strict=True):
            meta = task.pod.metadata
            yield MemberPod(*task.pod.key, meta.uid, meta.resource_version, part.name, index, needs)


def _needs(gang: LivePods, parts: Sequence[Part], role: str) -> GangNeeds:
    """With how many pods those of a role run from now on."""
    everybody = sum(len(part.tasks) for part in parts)
    of_gang = everybody + gang.done if gang.least is None else gang.least
    if all(part.role == role for part in parts):
        return GangNeeds(of_gang, of_gang)
    fewest = _fewest_of_role(gang, parts, role)
    there = sum(len(part.tasks) for part in parts if part.role == role)
    return GangNeeds(there if fewest is None else fewest, of_gang)


def _outgrown(gang: LivePods, parts: Sequence[Part], members: Iterable[MemberPod]) -> Iterator[MemberPod]:
    """The pods that were bound with more than are asked for now, each with what it is to say instead."""
    tasks = (task for part in parts for task in part.tasks)
    roles = (part.role for part in parts for _ in part.tasks)
    for member, task, role in zip(members, tasks, roles, strict=True):
        before = needs_on(task.pod)
        if before is not None and gang.asked is not None:
            said = gang.asked if all(part.role == role for part in parts) else _said_of_role(gang, role)
            now = before.least(GangNeeds(before.of_role if said is None else said, gang.asked))
            if now != before:
                yield member._replace(needs=str(now))


def _missing(gang: LivePods, places: Places) -> Missing | None:
    """What it still waits for; of pods that were not made, also the quota that has no room for them."""
    missing = gang.missing()
    if missing is None or missing.of is None or not gang.tasks:
        return missing
    return missing._replace(reason=missing.reason or places.quota_against(gang.tasks[-1].pod))


def is_elastic(job: Job) -> bool:
    """It runs on fewer tasks than it has."""
    return any(group.least < group.replicas for group in job.spec.task_groups)


def _closed(groups: Iterable[TaskGroup], nowhere: NodeSet) -> tuple[tuple[TaskGroup, ...], tuple[NodeSet, ...]]:
    """Groups of a gang that runs on but must not get a node more: what would join it is refused, or not to be scheduled yet."""
    return tuple(msgspec.structs.replace(group, nodes=nowhere.name) for group in groups), (nowhere,)


def parts_of(pods: Iterable[InRole]) -> tuple[Part, ...]:
    """Tasks by role, and within one by what they ask: unlike ones can't be in one group. Groups are named after roles.

    To which nodes its claims limit a pod is asked as long as it has none. Those that have one are with the first of the others.
    """
    alike: dict[tuple[str, bytes], list[PodTask]] = {}
    for one in pods:
        alike.setdefault((one.role, _signature(one.task)), []).append(one.task)
    parts: list[Part] = []
    for role, signature in sorted(alike):
        for tasks in _by_limits(alike[role, signature]):
            number = sum(part.role == role for part in parts)
            name, count = f"{role}-{number + 1}" if number else role, len(tasks)
            parts.append(Part(name, tasks, role, tuple(range(count)), count))
    return tuple(parts)


def _by_limits(tasks: Sequence[PodTask]) -> Iterator[tuple[PodTask, ...]]:
    limits = sorted({task.pod.spec.limits for task in tasks if not task.pod.holds}, key=msgspec.json.encode)
    if len(limits) < 2:
        yield tuple(tasks)
        return
    for number, limit in enumerate(limits):
        yield tuple(task for task in tasks if (number == 0 if task.pod.holds else task.pod.spec.limits == limit))


def _signature(task: PodTask) -> bytes:
    spec = task.pod.spec
    wishes = [spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints]
    slices = [names.label_or_annotation(task.pod.metadata, key) for key in SLICE_KEYS]
    return _asked(task.shape) + msgspec.json.encode([wishes, slices])


@lru_cache(maxsize=8192)
def _asked(shape: Shape) -> bytes:
    return encode(shape)


def _groups(
    gang: LivePods, parts: Sequence[Part], places: Places
) -> tuple[tuple[TaskGroup, ...], tuple[AffinityRules, ...], tuple[NodeSet, ...]]:
    groups: list[TaskGroup] = []
    aparts: list[AffinityRules] = []
    node_sets: dict[str, NodeSet] = {}
    everybody = [task.pod for task in gang.tasks]
    least = {part.name: fewest_of(gang, parts, part) for part in parts}
    for part in parts:
        # What a node has left counts for those alone that are to get there.
        first = next((task for task in part.tasks if not task.pod.holds), part.tasks[0])
        plain = places.plain(first)
        alike, fewest = [task.pod for task in part.tasks], least[part.name]
        company = Company(places, everybody, alike, sum(least.values()), fewest)
        apart = company.apart(plain.nodes)
        types, limited = plain.types, plain.limited
        if apart.nodes is not plain.nodes:  # sets compare node by node, and most gangs ask nothing that leaves fewer
            types, limited = as_types(places, apart.nodes, first.shape, plain.liked)
        apart.refusals += plain.refusals
        apart.remarks += plain.remarks
        aparts.append(apart)
        shape = msgspec.structs.replace(first.shape, gpu_types=types)
        replicas = part.replicas
        groups.append(
            TaskGroup(
                name=part.name,
                replicas=replicas,
                shape=shape,
                min_replicas=fewest if fewest < replicas else None,
                topology=GroupTopology(group=_one_or_all(apart.bundles), spread=apart.spread),
                nodes=limited.name if limited else "",
            )
        )
        node_sets |= {limited.name: limited} if limited else {}
    return tuple(groups), tuple(aparts), tuple(node_sets.values())


def _one_or_all(bundles: tuple[Bundle, ...]) -> Bundle | tuple[Bundle, ...] | None:
    return bundles[0] if len(bundles) == 1 else bundles or None


def _roles(
    gang: LivePods, parts: Sequence[Part], aparts: Sequence[AffinityRules], places: Places, units: Sequence[Units]
) -> RoleTopology:
    """What its roles ask by themselves, and some of them together."""
    groups = [
        RoleGroup(part.name, part.role, [task.pod for task in part.tasks], bool(apart.bundles))
        for part, apart in zip(parts, aparts, strict=True)
    ]
    return role_topology(groups, gang.group.sub_groups if gang.group else (), places, units)


def _kept_as_role(group: TaskGroup, kept: Kept | None) -> TaskGroup:
    if kept is None:
        return group
    topology = msgspec.structs.replace(group.topology, required=kept.required, preferred=kept.preferred or None)
    return msgspec.structs.replace(group, topology=topology)


def fewest_of(gang: LivePods, parts: Sequence[Part], part: Part) -> int:
    """How few tasks of a part do: what the PodGroup or the controller says of its role, or of the gang if this is all of it.

    Of a role with several parts all tasks are needed, until as many run as it takes: what joins these is of its own.
    """
    replicas, fewest = len(part.tasks), _fewest_of_role(gang, parts, part.role)
    if fewest is None:
        return replicas
    alike = [other for other in parts if other.role == part.role]
    if len(alike) == 1:
        return min(replicas, fewest)
    before = [sum(task.pod.holds for task in other.tasks) for other in alike]
    if sum(before) < fewest:
        return replicas
    at = alike.index(part)
    return min(before[at], max(0, fewest - sum(before[:at])))


def _fewest_of_role(gang: LivePods, parts: Sequence[Part], role: str) -> int | None:
    """None: nothing says it."""
    if all(part.role == role for part in parts):
        pods = sum(len(part.tasks) for part in parts)
        return max(1, (gang.least or pods) - gang.done)
    known = [fewest for fewest in (_said_of_role(gang, role), gang.began_with(role)) if fewest is not None]
    return min(known, default=None)


def _said_of_role(gang: LivePods, role: str) -> int | None:
    """What is asked for by now; None: nothing says it."""
    said = {name.lower(): fewest for name, fewest in gang.group.least_of} if gang.group else {}
    if gang.controller and not said:
        said = {name.lower(): fewest for name, _, fewest in gang.controller.roles}
    return said.get(role)


def _least_remark(gang: LivePods, parts: Sequence[Part]) -> tuple[Remark, ...]:
    fewest = sum(fewest_of(gang, parts, part) for part in parts)
    if gang.least is None or fewest <= gang.least - gang.done or gang.holds:
        return ()
    message = f"starts with {fewest} pods: that {gang.least} of any role would do can't be said here"
    return (Remark("least-of-any-role", message),)


def _topology(
    gang: LivePods, apart: Sequence[AffinityRules], places: Places
) -> tuple[TopologyRequest, tuple[Refusal, ...], tuple[Remark, ...]]:
    """What the gang asks of the whole of it; of several levels that are required the closest, which means the others."""
    if len(gang.pods) == 1:
        return TopologyRequest(), (), ()
    required = {found.required for found in apart} - {None}
    preferred = {level for found in apart for level in found.preferred}
    refusals: list[Refusal] = []
    remarks: list[Remark] = []
    # Of several roles each asks Kueue for itself.
    required_by, preferred_by = ((names.KUEUE_REQUIRED,), (names.KUEUE_PREFERRED,)) if len(apart) == 1 else ((), ())
    for key in _keys(gang, _required_by_objects(gang), *required_by, names.KAI_REQUIRED):
        level = as_level(places.level(key))
        required |= {level} if level else set()
        if level is None:
            fix = "Require a label of islands, racks or blocks that all nodes agree on, or prefer it."
            refusals.append(Refusal("not-a-level", f"requires one domain of {key}, which is no level here", fix))
    for key in _keys(gang, _preferred_by_objects(gang), *preferred_by, names.KAI_PREFERRED):
        level = as_level(places.level(key))
        preferred |= {level} if level else set()
        if level is None:
            remarks.append(Remark("not-a-level", f"prefers one domain of {key}, which is no level here"))
    spreads = {found.gang_spread for found in apart}
    if len(spreads) > 1:
        refusals.append(Refusal("part-of-gang", "its roles spread the gang differently", "Let them ask the same."))
    request = TopologyRequest(
        required=next((level for level in LEVELS if level in required), None),
        preferred=tuple(level for level in LEVELS if level in preferred) or None,
        spread=_only(spreads),
        placement="spread" if any(found.spreads_out for found in apart) else None,
    )
    return request, tuple(refusals), tuple(remarks)


def _required_by_objects(gang: LivePods) -> tuple[str, ...]:
    """By its PodGroup and what made its pods."""
    return (*(gang.group.required if gang.group else ()), gang.controller.required if gang.controller else "")


def _preferred_by_objects(gang: LivePods) -> tuple[str, ...]:
    return (*(gang.group.preferred if gang.group else ()), gang.controller.preferred if gang.controller else "")


def _keys(gang: LivePods, of_group: Iterable[str], *annotations: str) -> list[str]:
    written = {names.label_or_annotation(task.pod.metadata, key) for task in gang.tasks for key in annotations}
    return sorted({*of_group, *written} - {""})


def _only(spreads: set[Spread | None]) -> Spread | None:
    return next(iter(spreads)) if len(spreads) == 1 else None


def _placement(parts: Sequence[Part], places: Places, held: Held) -> tuple[TaskPlacement, ...]:
    placed = (
        _placed(part.name, index, task, places, held)
        for part in parts
        for index, task in zip(part.indices, part.tasks, strict=True)
        if task.pod.holds
    )
    return tuple(sorted(placed, key=lambda task: (task.group, task.index)))


def _placed(group: str, index: int, task: PodTask, places: Places, held: Held) -> TaskPlacement:
    node = NodeName(task.pod.spec.node_name)
    devices = held.get(task.pod.key, ())
    if task.shape.mig is not None and node in places.seen and devices:
        slots = slots_of(places.seen[node], devices)
        return TaskPlacement(group, index, node, mig=slots[0] if slots else None, mig_beside=slots[1:])
    share = share_of(task) if devices else None
    return TaskPlacement(group, index, node, devices, share, SHARING.get(task.sharing) if share else None)


def _job(
    gang: LivePods,
    groups: tuple[TaskGroup, ...],
    topology: TopologyRequest,
    placement: tuple[TaskPlacement, ...],
    phase: Phase,
) -> Job:
    limits = [task.time_limit for task in gang.tasks if task.time_limit is not None]
    limit = min(limits, default=None)
    pods = [task.pod for task in gang.tasks]
    there = [pod for pod in pods if pod.holds]
    started_at = began_at(there) if phase == "running" else None
    return Job(
        name=gang.key.job,
        submitted_at=gang.submitted_at,
        spec=JobSpec(
            queue=QueueName(gang.queue),
            task_groups=groups,
            priority_class=gang.priority_class,
            topology=topology,
            time_limit=limit,
            checkpoint=checkpoint_of(pods),
        ),
        phase=phase,
        attempt=max((task.attempt for task in gang.tasks if task.pod.holds), default=0),
        started_at=started_at,
        placement=placement,
        time_limit=limit_of(there, limit) if placement else None,
        saved_at=saved_at(pods, started_at),
        # What takes a pod's place is another one: of what the first was promised it knows nothing.
        leaves="unpromised" if placement else "freely",
        namespace=gang.key.namespace,
        namespace_labels=gang.namespace_labels,
        queue_called=gang.queue_called,
    )


def _phase(parts: Iterable[Part], groups: Sequence[TaskGroup]) -> Phase:
    """`running` once all that were bound run, as many as it takes; `stopping` if all that are on nodes were told to go.

    An elastic gang runs once so many do that it can do with them: what joins it, and may never begin, is of its own.
    """
    there = {part.name: [task.pod for task in part.tasks if task.pod.holds] for part in parts}
    everybody = [pod for pods in there.values() for pod in pods]
    if not everybody:
        return "pending"
    if all(pod.metadata.deletion_timestamp for pod in everybody):
        return "stopping"
    begun = {name: sum(pod.status.phase == "Running" for pod in pods) for name, pods in there.items()}
    if any(begun[group.name] < group.least for group in groups):
        return "starting"
    # Until the rest of a start is bound, its first pod says so.
    unbound = any(names.GANG_PLAN in pod.metadata.annotations for pod in everybody)
    whole = sum(begun.values()) == len(everybody) and not unbound
    return "running" if whole or any(group.least < group.replicas for group in groups) else "starting"
