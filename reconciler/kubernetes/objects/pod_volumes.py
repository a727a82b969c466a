"""Pods with volume claims as rounds see them: as if they required nodes that can mount what they claim.

Which nodes these are follows from the volume that a claim is bound to; of one that is bound once its pod has a node, from where
its class makes volumes. As kube-scheduler decides it: kubernetes 1.36, pkg/scheduler/framework/plugins/volumebinding. How many
volumes a node can mount is counted as a resource of its own (volume_limits.py). Pure: it is told what changes, and tells it a world
of objects.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.membership import membership_of
from reconciler.kubernetes.objects.remarks import Refusal
from reconciler.kubernetes.objects.selectors import limited_to
from reconciler.kubernetes.objects.storage import (
    NO_PROVISIONER,
    ONE_POD,
    SELECTED_NODE,
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    claims_named,
)
from reconciler.kubernetes.objects.volume_limits import Mount, Mountable, VolumeLimits
from reconciler.kubernetes.objects.wire import NodeLimit, NodeSelectorTerm, Pod, SelectorRequirement
from solver.model.amounts import VOLUME_PREFIX

Key = tuple[str, str]
K = TypeVar("K")
T = TypeVar("T", PersistentVolume, StorageClass, CsiDriver)


class PodWorld(Protocol):
    """What is told of pods."""

    def pod(self, before: Pod | None, after: Pod | None) -> bool:
        """A pod; whether it makes a difference."""


class ClaimStanding(NamedTuple):
    """What a claim means for its pod. `reach`: the nodes that can mount it, by terms one of which must hold; (): all of them.

    `is_unbound`: it is bound once it says on which node its pod will be.
    """

    reach: tuple[NodeSelectorTerm, ...] = ()
    awaited: str = ""
    refusal: Refusal | None = None
    is_unbound: bool = False


class PodVolumes:
    """Told of objects that came (`before` None), changed, and went (`after` None). Each answers whether that makes a difference.

    Until it `follows` what the claims of pods mean, pods are told as they are.
    """

    def __init__(self, world: PodWorld, mountable: Mountable = lambda _node, _amounts: False) -> None:
        self._world = world
        self._limits = VolumeLimits(mountable)
        self._follows = False
        self._pods: dict[Key, Pod] = {}
        self._told: dict[Key, Pod] = {}
        self._users: dict[Key, set[Key]] = defaultdict(set)
        self._claims: dict[Key, PersistentVolumeClaim] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self._bound_to: dict[str, set[Key]] = defaultdict(set)
        self._classes: dict[str, StorageClass] = {}
        self._drivers: dict[str, CsiDriver] = {}
        self._capacities: dict[Key, CsiStorageCapacity] = {}

    def follow(self, follows: bool) -> None:
        """Whether claims, volumes and their classes can be read."""
        if follows != self._follows:
            self._follows = follows
            self._tell(self._pods)

    def pod(self, before: Pod | None, after: Pod | None) -> bool:
        """A pod."""
        known = after or before
        if known is None or not claims_named(known):
            return self._world.pod(before, after)
        if before:
            self._pods.pop(before.key, None)
            for claim in _claims_of(before):
                _leave(self._users, claim, before.key)
        if after:
            self._pods[after.key] = after
            for claim in _claims_of(after):
                self._users[claim].add(after.key)
        return self._tell({known.key, *self._others_of(known)})

    def _others_of(self, pod: Pod) -> Iterator[Key]:
        """The pods that may have a claim of this one only while this one does not."""
        for key in _claims_of(pod):
            claim = self._claims.get(key)
            if claim is not None and claim.is_of_one_pod:
                yield from self._users.get(key, ())

    def csi_node(self, before: CsiNode | None, after: CsiNode | None) -> bool:
        """What drivers say of a node."""
        limiting = set(self._limits.limiting)
        differs = self._limits.node(before, after)
        return self._tell(self._pods) or differs if limiting != self._limits.limiting else differs

    def claim(self, before: PersistentVolumeClaim | None, after: PersistentVolumeClaim | None) -> bool:
        """A claim."""
        if before:
            self._claims.pop(before.key, None)
            _leave(self._bound_to, before.spec.volume_name, before.key)
        if after:
            self._claims[after.key] = after
            self._bound_to[after.spec.volume_name].add(after.key)
        known = after or before
        return self._tell(self._users.get(known.key, ())) if known else False

    def volume(self, before: PersistentVolume | None, after: PersistentVolume | None) -> bool:
        """A volume."""
        name = _put(self._volumes, before, after)
        return self._tell({pod for claim in self._bound_to.get(name, ()) for pod in self._users.get(claim, ())})

    def storage_class(self, before: StorageClass | None, after: StorageClass | None) -> bool:
        """A class of volumes."""
        _put(self._classes, before, after)
        return self._tell(self._waiting())

    def driver(self, before: CsiDriver | None, after: CsiDriver | None) -> bool:
        """A driver of volumes."""
        _put(self._drivers, before, after)
        return self._tell(self._waiting())

    def capacity(self, before: CsiStorageCapacity | None, after: CsiStorageCapacity | None) -> bool:
        """How much a driver has somewhere."""
        if before:
            self._capacities.pop((before.metadata.namespace, before.metadata.name), None)
        if after:
            self._capacities[after.metadata.namespace, after.metadata.name] = after
        return self._tell(self._waiting())

    def unbound(self, pod: Pod) -> tuple[PersistentVolumeClaim, ...]:
        """The claims of a pod that are bound once they say on which node it will be."""
        if not self._follows:
            return ()
        keys = [key for key in _claims_of(pod) if self._standing(pod, key).is_unbound]
        return tuple(self._claims[key] for key in keys)

    def of_one_pod(self, pod: Pod) -> tuple[Key, ...]:
        """The claims of a pod that one pod of the cluster mounts at a time."""
        keys = _claims_of(pod) if self._follows else ()
        return tuple(key for key in keys if key in self._claims and self._claims[key].is_of_one_pod)

    def are_bound(self, pod: Pod) -> bool:
        """Whether all its claims have volumes, as far as that is followed."""
        standings = (self._standing(pod, key) for key in _claims_of(pod)) if self._follows else ()
        return not any(one.is_unbound or one.awaited or one.refusal for one in standings)

    def _waiting(self) -> list[Key]:
        """Pods without a node: for those that have one it does not matter where volumes can be made."""
        return [key for key, pod in self._pods.items() if not pod.holds]

    def _tell(self, pods: Iterable[Key]) -> bool:
        """What these pods mean now; of some nothing may have changed."""
        differs = [self._told_anew(key) for key in sorted(pods)]
        return any(differs)

    def _told_anew(self, key: Key) -> bool:
        before, pod = self._told.pop(key, None), self._pods.get(key)
        mounts = self._mounts_of(pod) if pod and self._follows else ()
        is_there = pod is not None and pod.holds
        differs = self._limits.mounted(key, pod.spec.node_name if pod and is_there else "", mounts)
        if pod is None:
            return (self._world.pod(before, None) if before else False) or differs
        after = self._told[key] = _counting(self._seen(pod), mounts)
        return (self._world.pod(before, after) if before != after else False) or differs

    def _mounts_of(self, pod: Pod) -> tuple[Mount, ...]:
        """Its volumes whose drivers can mount only so many on some node."""
        limiting = self._limits.limiting
        found = (self._mount(key) for key in _claims_of(pod)) if limiting else ()
        return tuple(dict.fromkeys(mount for mount in found if mount and mount.driver in limiting))

    def _mount(self, key: Key) -> Mount | None:
        claim = self._claims.get(key)
        if claim is None:
            return None
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is not None:
            return Mount(volume.spec.csi.driver, volume.metadata.name) if volume.spec.csi else None
        made_by = self._classes.get(claim.spec.storage_class_name or "")
        return Mount(made_by.provisioner, "/".join(key)) if made_by else None

    def _seen(self, pod: Pod) -> Pod:
        if not self._follows or pod.spec.scheduler_name != names.SCHEDULER:
            return pod
        spec = msgspec.structs.replace(pod.spec, volumes=())
        if pod.holds or pod.is_over:
            return msgspec.structs.replace(pod, spec=spec)
        standings = [self._standing(pod, key) for key in _claims_of(pod)]
        refusal = next((one.refusal for one in standings if one.refusal), None)
        awaited = tuple(dict.fromkeys(one.awaited for one in standings if one.awaited))
        spec = msgspec.structs.replace(spec, unmet_claims=tuple(refusal) if refusal else None, awaited=awaited)
        seen = msgspec.structs.replace(pod, spec=spec)
        for one in standings:
            seen = limited_to(seen, NodeLimit("that can mount its volumes", one.reach)) if one.reach else seen
        return seen

    def _standing(self, pod: Pod, key: Key) -> ClaimStanding:
        claim, name = self._claims.get(key), key[1]
        if claim is None:
            return ClaimStanding(awaited=f"waiting for its volume claim {name}, which is not there")
        if not _is_for(claim, pod):
            fix = f"Rename the volume, or delete the claim {name}."
            return ClaimStanding(
                refusal=Refusal("volume-of-another", f"its volume claim {name} was not made for it", fix)
            )
        if claim.metadata.deletion_timestamp:
            return ClaimStanding(
                awaited=f"waiting for its volume claim {name}, which is being deleted, to be made anew"
            )
        if claim.is_of_one_pod and (taken := self._taken(pod, claim)):
            return taken
        if claim.status.phase == "Lost":
            message = f"the volume {claim.spec.volume_name} of its claim {name} is lost"
            return ClaimStanding(refusal=Refusal("volume-lost", message, "Make the claim anew."))
        if claim.spec.volume_name:
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is None or not claim.is_bound:
                return ClaimStanding(
                    awaited=f"waiting for its volume claim {name} to be bound to {claim.spec.volume_name}"
                )
            return ClaimStanding(volume.reach)
        return self._unbound(claim)

    def _unbound(self, claim: PersistentVolumeClaim) -> ClaimStanding:
        """Of one without a volume: who makes it, and when."""
        name, class_name = claim.metadata.name, claim.spec.storage_class_name
        made_by = self._classes.get(class_name or "")
        if made_by is None:
            why = f"there is no StorageClass {class_name}" if class_name else "it names no StorageClass"
            return ClaimStanding(awaited=f"waiting for its volume claim {name} to be bound: {why}")
        if not made_by.waits_for_pods:
            return ClaimStanding(awaited=f"waiting for its volume claim {name} to be bound")
        if made_by.provisioner == NO_PROVISIONER:
            message = f"its volume claim {name} is of the StorageClass {class_name}, of which a scheduler has to pick a volume"
            fix = "Bind it to one (spec.volumeName), or use a class with a provisioner."
            return ClaimStanding(refusal=Refusal("volume-unpicked", message, fix))
        if node := claim.metadata.annotations.get(SELECTED_NODE):
            only = SelectorRequirement("metadata.name", "In", (node,))
            return ClaimStanding((NodeSelectorTerm(match_fields=(only,)),), is_unbound=True)
        return self._to_be_made(claim, made_by)

    def _to_be_made(self, claim: PersistentVolumeClaim, made_by: StorageClass) -> ClaimStanding:
        driver = self._drivers.get(made_by.provisioner)
        if driver is None or not driver.spec.storage_capacity:
            return ClaimStanding(made_by.reach, is_unbound=True)
        there = [
            one.reach
            for one in self._capacities.values()
            if one.storage_class_name == made_by.metadata.name and one.has(claim.bytes_wanted)
        ]
        able = [term for term in there if term is not None]
        if not able:
            wanted = claim.spec.resources.requests.get("storage", "0")
            message = f"no node has {wanted} left for its volume claim {claim.metadata.name}"
            fix = f"Free some of the StorageClass {made_by.metadata.name}, or claim less."
            return ClaimStanding(refusal=Refusal("volume-too-large", message, fix))
        if any(not term.match_expressions for term in able):
            return ClaimStanding(made_by.reach, is_unbound=True)
        reach = made_by.reach or (NodeSelectorTerm(),)
        both = (NodeSelectorTerm((*one.match_expressions, *other.match_expressions)) for one in reach for other in able)
        return ClaimStanding(tuple(dict.fromkeys(both)), is_unbound=True)

    def _taken(self, pod: Pod, claim: PersistentVolumeClaim) -> ClaimStanding | None:
        """Of a claim that one pod mounts at a time: that another does, or that its own gang has it twice."""
        name = claim.metadata.name
        others = [self._pods[key] for key in sorted(self._users[claim.key]) if key != pod.key]
        there = [other for other in others if not other.is_over]
        if any(other.spec.scheduler_name == names.SCHEDULER and _are_one_gang(pod, other) for other in there):
            message = f"several of its pods mount the volume claim {name}, which one pod of the cluster may ({ONE_POD})"
            fix = "Give each a claim of its own, or make the claim ReadWriteMany."
            return ClaimStanding(refusal=Refusal("volume-of-one-pod", message, fix))
        holder = next((other for other in there if other.holds), None)
        if holder is None:
            return None
        where = holder.metadata.name
        return ClaimStanding(awaited=f"waiting for its volume claim {name} ({ONE_POD}), which the pod {where} mounts")


def _are_one_gang(one: Pod, other: Pod) -> bool:
    """A pod that takes the place of one that is leaving does not run beside it; pods of a Job without indices need not, either."""
    if one.metadata.deletion_timestamp or other.metadata.deletion_timestamp:
        return False
    key = membership_of(one).key
    is_loose = key.source == "job" and names.JOB_INDEX not in one.metadata.labels
    return key == membership_of(other).key and not is_loose


def _counting(pod: Pod, mounts: Sequence[Mount]) -> Pod:
    """As if its volumes were a resource that it asks its node for."""
    if not mounts:
        return pod
    drivers = Counter(f"{VOLUME_PREFIX}{mount.driver}" for mount in mounts)
    overhead = {**pod.spec.overhead, **{name: str(count) for name, count in drivers.items()}}
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, overhead=overhead))


def _claims_of(pod: Pod) -> list[Key]:
    return [(pod.metadata.namespace, name) for name in claims_named(pod)]


def _leave(members: dict[K, set[Key]], group: K, member: Key) -> None:
    """A group without members is forgotten: claims that are made for one pod each come and go for ever."""
    members[group].discard(member)
    if not members[group]:
        del members[group]


def _is_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """One that is made for a single pod belongs to it: another of that name was there before."""
    own = {f"{pod.metadata.name}-{volume.name}" for volume in pod.spec.volumes if volume.ephemeral is not None}
    owners = {owner.uid for owner in claim.metadata.owner_references}
    return claim.metadata.name not in own or pod.metadata.uid in owners


def _put(known: dict[str, T], before: T | None, after: T | None) -> str:
    """Its name."""
    if before:
        known.pop(before.metadata.name, None)
    if after:
        known[after.metadata.name] = after
    return (after or before).metadata.name  # type: ignore[union-attr]  # one of both is there
