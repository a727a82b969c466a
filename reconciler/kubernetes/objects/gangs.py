"""Which pods are one gang, how many of them there have to be, and what holds the gang up before a round is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.controllers import Controller
from reconciler.kubernetes.objects.membership import GangKey, Membership, order_of
from reconciler.kubernetes.objects.podgroups import Group, Source
from reconciler.kubernetes.objects.pods import PodTask, label_priority
from reconciler.kubernetes.objects.queue_names import LocalName
from reconciler.kubernetes.objects.remarks import Missing, Refusal, Remark
from reconciler.kubernetes.objects.saves import save_remarks
from reconciler.kubernetes.objects.wire import Pod
from solver.model.quantities import Instant

OF_A_GROUP: frozenset[Source] = frozenset({"podgroup", "volcano", "kai", "coscheduling"})
"""Gangs whose size a PodGroup says."""

AWAITED_MAX = 3
"""Things that pods wait for, of which it is said what they are."""

At = tuple[Source, str, str]
Groups = Mapping[At, Group]
Controllers = Mapping[At, Controller]


class InRole(NamedTuple):
    """A pod with its role."""

    role: str
    task: PodTask


@dataclass(frozen=True)
class LivePods:
    """The pods of one gang that live, in order, and what is known of it. `done`: how many have ended with success.

    `least`: how many have to be there, those that are done among them; None: not known.
    `queue_else`: its queue where none is named; `meant`: the queue that is meant by each LocalName. `stamped`: what
    `priorityClassName` may say without anybody having named a class: the cluster's default (`globalDefault`), where the policy has
    no class of that name.
    """

    key: GangKey
    pods: tuple[InRole, ...]
    done: int
    least: int | None
    group: Group | None = None
    controller: Controller | None = None
    disagrees: bool = False
    queue_else: str = ""
    meant: Mapping[str, str] = field(default_factory=dict)
    stamped: frozenset[str] = frozenset()

    @cached_property
    def tasks(self) -> tuple[PodTask, ...]:
        """Its pods."""
        return tuple(one.task for one in self.pods)

    @property
    def holds(self) -> bool:
        """Some of its pods are on nodes."""
        return any(task.pod.holds for task in self.tasks)

    @property
    def queue(self) -> str:
        """Its queue: what pods say, else the PodGroup, else what made the pods."""
        return next(map(self._meant, self.named_queues), self.queue_else)

    @property
    def named_queues(self) -> Iterator[str]:
        """What is named as its queue, the first of which counts."""
        objects = (self.group, self.controller)
        yield from (task.queue for task in self.tasks if task.queue)
        yield from (known.queue for known in objects if known and known.queue)

    def _meant(self, named: str) -> str:
        return self.meant.get(named, named) if isinstance(named, LocalName) else named

    @property
    def submitted_at(self) -> Instant:
        """When its first pod was created; beside another scheduler, what makes them, since queues such as Kueue hold that back."""
        first = min(task.created for task in self.tasks)
        made = self.controller.created if self.controller else ""
        is_ours = any(task.pod.spec.scheduler_name == names.SCHEDULER for task in self.tasks)
        return min(first, Instant.parse(made)) if made and not is_ours else first

    @property
    def priority_class(self) -> str:
        """Its priority class: what pods' labels say, else the PodGroup, else what made the pods, else the pods' own class."""
        said = next((task.priority_class for task in self.tasks if task.priority_class), "")
        objects = (self.group, self.controller)
        said = said or next((known.priority_class for known in objects if known and known.priority_class), "")
        return said or next((name for task in self.tasks if (name := self._own_class(task))), "")

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

    def missing(self) -> Missing | None:
        """What it still waits for: pods, or leave for them to be scheduled; None: nothing."""
        there = len(self.pods) + self.done
        if self.least is not None and there < self.least:
            return Missing(there, self.least)
        if self.least is None and self.key.source in OF_A_GROUP:
            return Missing(there, None, f"waiting for its PodGroup {self.key.name}, which is not there yet")
        if self._gates:
            return Missing(there, None, f"held by scheduling gates: {', '.join(self._gates)}")
        if awaited := self._awaited:
            more = f"; and {len(awaited) - AWAITED_MAX} more" if len(awaited) > AWAITED_MAX else ""
            return Missing(there, None, "; ".join(awaited[:AWAITED_MAX]) + more)
        return None

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
        if self.controller and self.controller.in_turn:
            message = f"{self.key.name} makes some of its pods only once others run, so they can't start together"
            fix = f"Start them in any order, or write the annotations {names.GANG} and {names.GANG_SIZE} on each part."
            yield Refusal("starts-in-turn", message, fix)
        if not self.queue:
            yield Refusal("no-queue", "names no queue", f"Write the label {names.QUEUE} or {names.KUEUE_QUEUE}.")
        yield from self._differences()

    def remarks(self) -> Iterator[Remark]:
        """What is not followed whatever the nodes are."""
        yield from self.group.remarks if self.group else ()
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

    def _differences(self) -> Iterator[Refusal]:
        queues = {self._meant(task.queue) for task in self.tasks if task.queue}
        if len(queues) > 1:
            yield Refusal("several-queues", f"its pods name the queues {', '.join(sorted(queues))}", "Name one.")
        classes = {label_priority(task.pod.metadata) or self._own_class(task) for task in self.tasks} - {""}
        if len(classes) > 1 and not (self.group and self.group.priority_class):
            message = f"its pods name the priority classes {', '.join(sorted(classes))}"
            yield Refusal("several-classes", message, f"Name one, or write the label {names.PRIORITY_CLASS}.")

    def _own_class(self, task: PodTask) -> str:
        named = task.pod.spec.priority_class_name
        return "" if named in self.stamped else named


def gang_pods(
    named: GangKey,
    pods: Iterable[tuple[Membership, Pod]],
    groups: Groups,
    controllers: Controllers,
    task_of: Callable[[Pod], PodTask],
) -> tuple[LivePods, ...]:
    """The pods that name one gang: as that gang, or each as its own, sorted by name. `task_of` reads a pod as a task."""
    at = (named.source, named.namespace, named.name)
    group, controller = groups.get(at), controllers.get(at)
    members: dict[GangKey, list[tuple[Membership, PodTask]]] = defaultdict(list)
    done: dict[GangKey, int] = defaultdict(int)
    for membership, pod in pods:
        found = _settled(membership, pod, group, controller)
        if pod.status.phase == "Succeeded":
            done[found.key] += 1
        elif not pod.is_over and (pod.spec.node_name or not pod.metadata.deletion_timestamp):
            members[found.key].append((found, task_of(pod)))
    return tuple(_gang(key, members[key], done[key], group, controller) for key in sorted(members))


def _settled(found: Membership, pod: Pod, group: Group | None, controller: Controller | None) -> Membership:
    """A pod whose group or controller asks for no gang is a gang of its own."""
    key = found.key
    if found.size is not None:
        return found
    is_basic = group is not None and group.least is None
    is_loose = controller.alone if controller else names.JOB_INDEX not in pod.metadata.labels
    if is_basic or (key.source == "job" and is_loose):
        return Membership(GangKey(key.namespace, "pod", pod.metadata.name), found.role, 1)
    return found


def _gang(
    key: GangKey,
    members: Collection[tuple[Membership, PodTask]],
    done: int,
    group: Group | None,
    controller: Controller | None,
) -> LivePods:
    sizes = {found.size for found, _ in members} - {None}
    least = max((size for size in sizes if size), default=None)
    if least is None and group is not None:
        least = group.least
    if least is None and controller is not None:
        least = sum(fewest for _, _, fewest in controller.roles)
    ordered = members
    if len(members) > 1:
        ordered = sorted(members, key=lambda one: (one[0].role, order_of(one[1].pod.metadata)))
    in_roles = tuple(InRole(found.role, task) for found, task in ordered)
    return LivePods(key, in_roles, done, least, group, controller, disagrees=len(sizes) > 1)
