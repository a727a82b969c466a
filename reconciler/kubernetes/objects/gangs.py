"""Which pods are one gang, how many of them there have to be, and what holds the gang up before a round is asked."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.controllers import Controller, Stage
from reconciler.kubernetes.objects.gang_needs import least_of_gang, needs_on
from reconciler.kubernetes.objects.membership import GangKey, Membership, in_natural_order, order_of
from reconciler.kubernetes.objects.podgroups import Group, Source
from reconciler.kubernetes.objects.pods import PodTask, label_priority
from reconciler.kubernetes.objects.queue_names import LocalName
from reconciler.kubernetes.objects.remarks import Missing, Refusal, Remark
from reconciler.kubernetes.objects.saves import save_remarks
from reconciler.kubernetes.objects.task_groups import unfollowed
from reconciler.kubernetes.objects.unit_rules import UnitRule
from reconciler.kubernetes.objects.wire import Pod
from reconciler.kubernetes.objects.workload_groups import group_name
from solver.model.quantities import Instant

OF_A_GROUP: frozenset[Source] = frozenset({"podgroup", "workload", "volcano", "kai", "coscheduling"})
"""Gangs whose size a PodGroup says."""

AWAITED_MAX = 3
"""Things that pods wait for, of which it is said what they are."""

At = tuple[Source, str, str]
Groups = Mapping[At, Group]
Controllers = Mapping[At, Controller]


class InRole(NamedTuple):
    """A pod with its role, and the unit that it is in, where its PodGroup has such."""

    role: str
    task: PodTask
    unit: str = ""


@dataclass(frozen=True)
class LivePods:
    """The pods of one gang that live, in order, and what is known of it. `done`: how many have ended with success.

    `least`: how many have to be there, those that are done among them; None: not known. `asked`: how many are asked for by now: of
    a gang that runs and was told to be larger that is more. `admitted`: since when it waited to be admitted; "": it was not.
    `comes_later`: of what else than its controller makes it a gang, what that controller makes in turn, and has not made yet.
    `queue_else`: its queue where none is named; `meant`: the queue that is meant by each LocalName. `stamped`: what
    `priorityClassName` may say without anybody having named a class: the cluster's default (`globalDefault`), where the policy has
    no class of that name. `namespace_labels`: those of its namespace, each as KEY=VALUE.
    `meant_by_policy`: the LocalNames of which the policy says which queue they mean; "" stands for none.
    """

    key: GangKey
    pods: tuple[InRole, ...]
    done: int
    least: int | None
    group: Group | None = None
    controller: Controller | None = None
    disagrees: bool = False
    comes_later: tuple[Stage, ...] = ()
    queue_else: str = ""
    meant: Mapping[str, str] = field(default_factory=dict)
    stamped: frozenset[str] = frozenset()
    asked: int | None = None
    admitted: str = ""
    namespace_labels: tuple[str, ...] = ()
    meant_by_policy: frozenset[str] = frozenset()

    @cached_property
    def tasks(self) -> tuple[PodTask, ...]:
        """Its pods."""
        return tuple(one.task for one in self.pods)

    @property
    def holds(self) -> bool:
        """Some of its pods are on nodes."""
        return any(task.pod.holds for task in self.tasks)

    @property
    def is_counted(self) -> bool:
        """It can be said whose it is and what each of its pods on nodes holds, whatever is wrong with it otherwise."""
        return bool(self.queue) and all(task.is_counted for task in self.tasks if task.pod.holds)

    @cached_property
    def _speaking(self) -> Sequence[PodTask]:
        """Its pods, those on nodes first: what takes the place of one that is gone does not say whose those are that run."""
        return sorted(self.tasks, key=lambda task: not task.pod.holds)

    @property
    def queue(self) -> str:
        """Its queue: what pods say, else the PodGroup, else what made the pods."""
        return next(map(self._meant, self.named_queues), self.queue_else)

    @property
    def named_queues(self) -> Iterator[str]:
        """What is named as its queue, the first of which counts."""
        objects = (self.group, self.controller)
        yield from (task.queue for task in self._speaking if task.queue)
        yield from (known.queue for known in objects if known and known.queue)

    @property
    def queue_called(self) -> str | None:
        """The name that counts as its queue's, where the policy says which queue is meant; "": none is named. None: it does not."""
        named = next(self.named_queues, "")
        is_own = bool(named) and not isinstance(named, LocalName)
        return str(named) if named in self.meant_by_policy and not is_own else None

    def _meant(self, named: str) -> str:
        return self.meant.get(named, named) if isinstance(named, LocalName) else named

    @property
    def submitted_at(self) -> Instant:
        """When its first pod was created; beside another scheduler, what makes them, since queues such as Kueue hold that back.

        What comes in turn has the place in line of what came first: that may be there already, and wait for it.
        """
        first = min(task.created for task in self.tasks)
        if self.admitted:
            return min(first, Instant.parse(self.admitted))
        made = self.controller.created if self.controller else ""
        is_ours = any(task.pod.spec.scheduler_name == names.SCHEDULER for task in self.tasks)
        comes_later = self.controller is not None and any(stage.after for stage in self.controller.stages[:1])
        return min(first, Instant.parse(made)) if made and (comes_later or not is_ours) else first

    @property
    def priority_class(self) -> str:
        """Its priority class: what pods' labels say, else the PodGroup, else what made the pods, else the pods' own class."""
        said = next((task.priority_class for task in self._speaking if task.priority_class), "")
        objects = (self.group, self.controller)
        said = said or next((known.priority_class for known in objects if known and known.priority_class), "")
        return said or next((name for task in self._speaking if (name := self._own_class(task))), "")

    @property
    def is_held_up(self) -> bool:
        """Some of its pods are not to be scheduled yet, or it is not known yet how many there will be."""
        missing = self.missing()
        return bool(self._gates or self._awaited) or (missing is not None and missing.of is None)

    @property
    def _gates(self) -> list[str]:
        return sorted({gate.name for task in self.tasks for gate in task.pod.spec.scheduling_gates})

    @property
    def _awaited(self) -> list[str]:
        return sorted({why for task in self.tasks for why in task.pod.spec.awaited})

    def began_with(self, role: str) -> int | None:
        """With how many of a role those of its pods were bound that run; None: none does, or says it."""
        said = (needs_on(one.task.pod) for one in self.pods if one.role == role)
        return min((known.of_role for known in said if known), default=None)

    def missing(self) -> Missing | None:
        """What it still waits for: pods, or leave for them to be scheduled; None: nothing."""
        there = len(self.pods) + self.done
        if self.least is not None and there < self.least:
            return Missing(there, self.least, "; ".join(map(self._in_turn, self.comes_later)))
        if self.least is None and self.key.source in OF_A_GROUP:
            return Missing(there, None, f"waiting for its PodGroup {self.key.name}, which is not there yet")
        if self._gates:
            return Missing(there, None, f"held by scheduling gates: {', '.join(self._gates)}")
        if awaited := self._awaited:
            more = f"; and {len(awaited) - AWAITED_MAX} more" if len(awaited) > AWAITED_MAX else ""
            return Missing(there, None, "; ".join(awaited[:AWAITED_MAX]) + more)
        return None

    def _in_turn(self, later: Stage) -> str:
        said = f"pods of {' and '.join(later.roles)} are made once {later.after}"
        return f"{said}, so {self.key.source} {self.key.name} must not count them in"

    def refusals(self) -> Iterator[Refusal]:
        """What can't be kept whatever the nodes are."""
        yield from dict.fromkeys(refusal for task in self.tasks for refusal in task.refusals)
        yield from self.group.refusals if self.group else ()
        if self.group and self.group.least is None and self.group.required:
            message = "its PodGroup requires one domain for pods that are each of their own"
            yield Refusal("topology-without-gang", message, "Give the PodGroup the gang policy, or drop its topology.")
        if self.least is None and self.key.source not in OF_A_GROUP:
            message = f"nothing says how many pods {self.key.source} {self.key.name} has"
            yield Refusal("gang-size-unknown", message, f"Write the annotation {names.GANG_SIZE} on its pods.")
        if self.disagrees:
            yield Refusal("gang-size-differs", "its pods name different sizes of it", f"Write one {names.GANG_SIZE}.")
        if not self.queue:
            yield Refusal("no-queue", "names no queue", f"Write the label {names.QUEUE} or {names.KUEUE_QUEUE}.")
        yield from (said for said in self._task_groups() if isinstance(said, Refusal))
        yield from self._differences()

    def remarks(self) -> Iterator[Remark]:
        """What is not followed whatever the nodes are."""
        yield from self.group.remarks if self.group else ()
        if self.controller and self.controller.stages:
            yield from self._stage_remarks(self.controller)
        yield from (said for said in self._task_groups() if isinstance(said, Remark))
        if any(task.pod.spec.preemption_policy == "Never" for task in self.tasks):
            message = "preemptionPolicy: Never: whether others leave for it is policy, in Git"
            yield Remark("preemption-policy", message)
        yield from dict.fromkeys(save_remarks(task.pod for task in self.tasks))
        if any(
            volume.persistent_volume_claim or volume.ephemeral
            for task in self.tasks
            for volume in task.pod.spec.volumes
        ):
            yield Remark(
                "volumes",
                "where its volumes can be mounted is not looked at: if not everywhere, say so by nodeAffinity",
            )

    def _stage_remarks(self, controller: Controller) -> Iterator[Remark]:
        for later in controller.stages[1:]:
            roles = " and ".join(later.roles)
            message = f"pods of {roles} are made once {later.after}: nothing is kept free for them until then"
            yield Remark("starts-in-turn", message)
        said = {names.label_or_annotation(task.pod.metadata, names.KAI_REQUIRED) for task in self.tasks}
        if whole := sorted({*said, controller.required} - {""}):
            message = f"each of its stages is in one domain of {', '.join(whole)}, which need not be that of the others"
            yield Remark("starts-in-turn", message)

    def _task_groups(self) -> Iterator[Refusal | Remark]:
        """Where people say themselves what the gang is, they say how it starts, too."""
        if self.key.source not in ("gang", "yunikorn"):
            yield from unfollowed(task.pod.metadata for task in self.tasks)

    def _differences(self) -> Iterator[Refusal]:
        staying = [task for task in self.tasks if not task.pod.metadata.deletion_timestamp] or self.tasks
        queues = {self._meant(task.queue) for task in staying if task.queue}
        if len(queues) > 1:
            yield Refusal("several-queues", f"its pods name the queues {', '.join(sorted(queues))}", "Name one.")
        classes = {label_priority(task.pod.metadata) or self._own_class(task) for task in staying} - {""}
        if len(classes) > 1 and not (self.group and self.group.priority_class):
            message = f"its pods name the priority classes {', '.join(sorted(classes))}"
            yield Refusal("several-classes", message, f"Name one, or write the label {names.PRIORITY_CLASS}.")

    def _own_class(self, task: PodTask) -> str:
        named = task.pod.spec.priority_class_name
        return "" if named in self.stamped else named


def gang_pods(
    named: GangKey,
    pods: Collection[tuple[Membership, Pod]],
    groups: Groups,
    controllers: Controllers,
    task_of: Callable[[Pod], PodTask],
    admitted: Mapping[At, str] = {},
) -> tuple[LivePods, ...]:
    """The pods that name one gang, at least one: as that gang, as one for each stage in which they are made, or each as its own.

    Sorted by name. `task_of` reads a pod as a task. `admitted`: gangs that were admitted as a whole, with the time since which they
    waited for it.
    """
    maker = min(found.maker for found, _ in pods)
    of_group = group_name(named.name) if named.source == "workload" else named.name
    group = groups.get((named.source, named.namespace, of_group))
    made_by = controllers.get((maker.source, maker.namespace, maker.name))
    controller = made_by if maker.source == named.source or _counts_all_in_turn(group, made_by) else None
    since = admitted.get((maker.source, maker.namespace, maker.name))
    members: dict[GangKey, list[tuple[Membership, PodTask]]] = defaultdict(list)
    done: dict[GangKey, int] = defaultdict(int)
    for membership, pod in pods:
        found = _settled(membership, pod, group, controller, is_admitted=since is not None)
        if pod.status.phase == "Succeeded":
            done[found.key] += 1
        elif not pod.is_over and (pod.spec.node_name or not pod.metadata.deletion_timestamp):
            members[found.key].append((found, task_of(pod)))
    if group and group.units:
        members = in_units(members, group.units)
    gangs = (
        replace(_gang(key, members[key], done[key], group, controller), admitted=since or "") for key in sorted(members)
    )
    if made_by is None or controller is not None or not made_by.stages:
        return tuple(gangs)
    there = {found.made_as for found, _ in pods}
    later = tuple(stage for stage in made_by.stages if stage.after and there.isdisjoint(stage.roles))
    return tuple(replace(gang, comes_later=later) for gang in gangs)


def _counts_all_in_turn(group: Group | None, made_by: Controller | None) -> bool:
    """Whether a PodGroup counts all that a controller makes in turn, as Kubeflow Trainer writes it: it would never be whole."""
    if group is None or made_by is None or not made_by.stages:
        return False
    return group.least == sum(fewest for _, _, fewest in made_by.roles)


def _in_order(one: tuple[Membership, PodTask]) -> tuple[object, ...]:
    found, task = one
    return found.role, in_natural_order(found.unit), order_of(task.pod.metadata)


def in_units(
    members: Mapping[GangKey, Sequence[tuple[Membership, PodTask]]], rules: Sequence[UnitRule]
) -> dict[GangKey, list[tuple[Membership, PodTask]]]:
    """The pods of each gang, in the units that they are in. What is no whole unit yet waits by itself, until all of it is there."""
    found = dict[GangKey, list[tuple[Membership, PodTask]]]()
    for key, pods in members.items():
        places = [_unit_of(known, task, rules) for known, task in pods]
        there = Counter(place[1] for place in places if place)
        on_nodes = {place[1] for place, (_, task) in zip(places, pods, strict=True) if place and task.pod.holds}
        for place, (known, task) in zip(places, pods, strict=True):
            mine, settled = key, known
            if place and known.size is None:
                role, unit, size = place
                settled = known._replace(role=role, unit=unit)
                if there[unit] < size and unit not in on_nodes:
                    mine = key._replace(name=f"{key.name}:{unit}")
                    settled = settled._replace(key=mine, size=size, unit="")
            found.setdefault(mine, []).append((settled, task))
    return found


def _unit_of(found: Membership, task: PodTask, rules: Sequence[UnitRule]) -> tuple[str, str, int] | None:
    """The role that a pod has in all units, the unit that it is in, and of how many pods that is."""
    for rule in rules:
        place = rule.place_of(found.role, task.pod.metadata.labels)
        if place:
            return (*place, rule.size)
    return None


def _settled(
    found: Membership, pod: Pod, group: Group | None, controller: Controller | None, *, is_admitted: bool
) -> Membership:
    """A pod whose group or controller asks for no gang is a gang of its own; what a controller makes in turn is one each time.

    What is admitted as a whole is a gang, whatever makes it.
    """
    if controller and controller.stages:
        return _of_stage(found, pod, controller)
    key = found.key
    if found.size is not None:
        return found
    is_basic = group is not None and group.least is None
    is_loose = controller.alone if controller else names.JOB_INDEX not in pod.metadata.labels
    if is_basic or (key.source == "job" and is_loose and not is_admitted):
        return found._replace(key=GangKey(key.namespace, "pod", pod.metadata.name), size=1)
    return found


def _of_stage(found: Membership, pod: Pod, controller: Controller) -> Membership:
    """Those that are made together are one gang, which does not wait for what is made later.

    A size that people write may say that fewer do, but not more: more pods of the stage don't come.
    """
    number = controller.stage_of(found.made_as)
    if number is None:
        return found
    roles = controller.stages[number].roles
    key = found.key._replace(name=f"{found.key.name}:{'+'.join(roles)}")
    there = sum(count for role, count, _ in controller.roles if role in roles)
    if key.source in OF_A_GROUP and found.size is None:
        return found._replace(key=key, size=there)
    if key.source == "lws" and found.size and not names.label_or_annotation(pod.metadata, names.GANG_SIZE):
        there = 1 if found.made_as == names.LEADER_ROLE else found.size - 1
        return found._replace(key=key, size=there)
    return found._replace(key=key, size=min(found.size, there) if found.size else None)


def _gang(
    key: GangKey,
    members: Collection[tuple[Membership, PodTask]],
    done: int,
    group: Group | None,
    controller: Controller | None,
) -> LivePods:
    if controller and controller.stages:
        number = controller.stage_of(next(found.made_as for found, _ in members))
        controller = None if number is None else controller.of_stage(number)
    # Those that are ending may be of another size: a LeaderWorkerSet makes the leader anew beside workers of before.
    staying = [found for found, task in members if not task.pod.metadata.deletion_timestamp]
    sizes = {found.size for found in staying or (found for found, _ in members)} - {None}
    least = max((size for size in sizes if size), default=None)
    if least is None and group is not None:
        least = group.least
    if least is None and controller is not None:
        least = sum(fewest for _, _, fewest in controller.roles)
    ordered = members
    if len(members) > 1:
        ordered = sorted(members, key=_in_order)
    in_roles = tuple(InRole(found.role, task, found.unit) for found, task in ordered)
    needed = least_of_gang(least, (one.task.pod for one in in_roles))
    return LivePods(key, in_roles, done, needed, group, controller, disagrees=len(sizes) > 1, asked=least)
