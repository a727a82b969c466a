"""The pods that are jobs, in gangs, while they come and go: only what has changed is gathered anew."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from reconciler.kubernetes.objects.controllers import Controller
from reconciler.kubernetes.objects.gangs import At, LivePods, gang_pods
from reconciler.kubernetes.objects.membership import GangKey, Membership, membership_of
from reconciler.kubernetes.objects.pod_ownership import OURS, PodOwnership
from reconciler.kubernetes.objects.podgroups import Group
from reconciler.kubernetes.objects.pods import PodTask, task_of
from reconciler.kubernetes.objects.queue_names import LocalName, LocalQueue, NamespaceObject, QueueNames
from reconciler.kubernetes.objects.wire import Pod
from reconciler.kubernetes.objects.workload_groups import group_name
from solver.policy.namespace_rules import NamespaceRules

PodKey = tuple[str, str]


class Regathered(NamedTuple):
    """A gang as it was (None: new) and as it is (None: gone)."""

    before: LivePods | None
    after: LivePods | None


class GangIndex:
    """Every gang there is.

    Pods are kept by the gang that they name, which need not be the one that they are in: a group that asks for no gang makes each
    of its pods one. `whose`: which pods are jobs.
    """

    def __init__(self, whose: PodOwnership = OURS) -> None:
        self._whose = whose
        self._named: dict[GangKey, dict[PodKey, tuple[Membership, Pod]]] = {}
        self._groups: dict[At, Group] = {}
        self._controllers: dict[At, Controller] = {}
        self._made_by: dict[GangKey, set[GangKey]] = {}
        """The gangs that pods name, by the object that made them, where that has another name; `_makers_of` the other way round."""
        self._makers_of: dict[GangKey, set[GangKey]] = {}
        self._found: dict[GangKey, tuple[GangKey, ...]] = {}
        self._tasks: dict[PodKey, PodTask] = {}
        self._changed: set[GangKey] = set()
        self._admitted: dict[At, str] = {}
        """Gangs that are admitted as a whole, with the time since which they wait."""
        self._stamped: frozenset[str] = frozenset()
        self._queues = QueueNames()
        self._renamed: set[str] = set()
        """Namespaces in which a name may mean another queue than before."""
        self.gangs: dict[GangKey, LivePods] = {}
        self.gang_of: dict[PodKey, GangKey] = {}
        """In which gang a pod is; pods that have ended are in none."""

    def pod(self, before: Pod | None, after: Pod | None) -> bool:
        """A pod came, changed, or went; whether it is, or was, a job's."""
        if before and self._whose.are_jobs(before):
            key = membership_of(before).key
            self._named[key].pop(before.key)
            self._tasks.pop(before.key, None)
            self._changed.add(key)
        if after and self._whose.are_jobs(after):
            membership = membership_of(after)
            self._named.setdefault(membership.key, {})[after.key] = membership, after
            if membership.maker != membership.key:
                self._makers_of.setdefault(membership.key, set()).add(membership.maker)
                self._made_by.setdefault(membership.maker, set()).add(membership.key)
            self._changed.add(membership.key)
        return any(pod is not None and self._whose.are_jobs(pod) for pod in (before, after))

    def group(self, before: Group | None, after: Group | None) -> None:
        """A PodGroup came, changed, or went."""
        for known in (before, after):
            if known:
                self._changed.add(GangKey(known.namespace, known.source, known.name))
                self._changed |= self._replicas_of(known)
        if before:
            self._groups.pop(_at(before), None)
        if after:
            self._groups[_at(after)] = after

    def _replicas_of(self, group: Group) -> set[GangKey]:
        """The gangs that are of one group of a Workload, each of a replica."""
        if group.source != "workload":
            return set()
        of = group.namespace, group.source, group.name
        return {key for key in self._named if (key.namespace, key.source, group_name(key.name)) == of}

    def controller(self, before: Controller | None, after: Controller | None) -> None:
        """An object that makes pods came, changed, or went."""
        for known in (before, after):
            if known:
                key = GangKey(known.namespace, known.source, known.name)
                self._changed |= {key} | self._made_by.get(key, set())
        if before:
            self._controllers.pop(_at(before), None)
        if after:
            self._controllers[_at(after)] = after

    def admitted(self, key: GangKey, since: str | None) -> bool:
        """The pods of a gang are admitted together, and wait since then; None: not any more. Whether that was otherwise."""
        at = key.source, key.namespace, key.name
        if self._admitted.get(at) == since:
            return False
        self._admitted.pop(at, None)
        if since is not None:
            self._admitted[at] = since
        self._changed |= {key} | self._made_by.get(key, set())
        return True

    def stamp(self, classes: frozenset[str]) -> bool:
        """Pods may have these priority classes without having named one; whether these are others than before."""
        if classes == self._stamped:
            return False
        self._stamped = classes
        self._changed |= self._named.keys()
        return True

    @property
    def local_queues(self) -> tuple[LocalQueue, ...]:
        """All that there are, sorted."""
        return self._queues.local_queues

    def local_queue(self, before: LocalQueue | None, after: LocalQueue | None) -> bool:
        """A LocalQueue came, changed, or went; whether it makes a difference."""
        self._renamed |= {known.namespace for known in (before, after) if known}
        return self._queues.change(before, after)

    def namespace(self, before: NamespaceObject | None, after: NamespaceObject | None) -> bool:
        """A Namespace came, changed, or went; whether it makes a difference."""
        differs = self._queues.change_namespace(before, after)
        self._renamed |= {known.metadata.name for known in (before, after) if known and differs}
        return differs

    def declare(self, rules: NamespaceRules) -> None:
        """What the policy says of namespaces now."""
        if self._queues.declare(rules):
            self._changed |= self._named.keys()

    def renewed(self) -> dict[GangKey, Regathered]:
        """The gangs that are not as they were when this was asked last."""
        if self._renamed:
            self._changed |= {named for named in self._named if named.namespace in self._renamed}
            self._renamed.clear()
        before: dict[GangKey, LivePods] = {}
        after: dict[GangKey, LivePods] = {}
        for named in self._changed:
            before |= {key: self.gangs[key] for key in self._found.pop(named, ())}
            after |= self._gathered(named)
        self._changed.clear()
        changed = {
            key: Regathered(before.get(key), after.get(key))
            for key in before.keys() | after.keys()
            if before.get(key) != after.get(key)
        }
        for key in changed:
            self._forget(before.get(key))
        for key in changed:
            self._keep(after.get(key))
        return changed

    def _gathered(self, named: GangKey) -> dict[GangKey, LivePods]:
        pods = self._named.get(named, {})
        if not pods:
            self._named.pop(named, None)
            for maker in self._makers_of.pop(named, ()):
                self._made_by[maker].discard(named)
                if not self._made_by[maker]:
                    del self._made_by[maker]
            return {}
        gangs = gang_pods(named, pods.values(), self._groups, self._controllers, self._task, self._admitted)
        found = {gang.key: self._as_named(gang) for gang in gangs}
        self._found[named] = tuple(found)
        return found

    def _as_named(self, gang: LivePods) -> LivePods:
        """With the queues and classes that its names mean in its namespace."""
        namespace = gang.key.namespace
        local = {named for named in gang.named_queues if isinstance(named, LocalName)}
        default = self._queues.default_queue(namespace)
        by_policy = {named for named in local if self._queues.is_of_policy(namespace, named)}
        return replace(
            gang,
            queue_else=default or self._whose.queue,
            meant={named: self._queues.queue_called(namespace, named) for named in local},
            stamped=self._stamped,
            namespace_labels=self._queues.labels_of(namespace),
            meant_by_policy=frozenset(by_policy | ({""} if default else set())),
        )

    def _task(self, pod: Pod) -> PodTask:
        known = self._tasks.get(pod.key)
        if known is None:
            known = self._tasks[pod.key] = task_of(pod)
        return known

    def _forget(self, gang: LivePods | None) -> None:
        if gang:
            del self.gangs[gang.key]
            for task in gang.tasks:
                self.gang_of.pop(task.pod.key, None)

    def _keep(self, gang: LivePods | None) -> None:
        if gang:
            self.gangs[gang.key] = gang
            for task in gang.tasks:
                self.gang_of[task.pod.key] = gang.key


def _at(known: Group | Controller) -> At:
    return known.source, known.namespace, known.name
