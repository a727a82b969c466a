"""Has the GPUs of nodes partitioned anew: writes the label that their MIG manager follows, and notes what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.binder.journal import GangBinding
from reconciler.kubernetes.binder.records import written
from reconciler.kubernetes.binder.reservation_store import CONFIG_MAPS
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.fencing import LeaderSource
from reconciler.kubernetes.client.refusals import KubernetesError, UnreachableError
from reconciler.kubernetes.control.geometry import bindable, geometry_of, wishes_of, with_geometry
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.mig.change import (
    DEADLINE,
    REST,
    Fate,
    Made,
    MigChange,
    change_on,
    ended_change,
    fate_of,
    made_lately,
)
from reconciler.kubernetes.mig.choice import Choice, GeometryRequest, choose
from reconciler.kubernetes.mig.configs import (
    KEY,
    ConfigsUnreadableError,
    Layout,
    NamedConfig,
    as_written,
    read_configs,
)
from reconciler.kubernetes.mig.slots import layouts_of
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import NODES
from reconciler.kubernetes.objects.wire import KubeNode
from reconciler.kubernetes.status.occurrences import WAITING, Occurrence, Regarding, the_pod
from reconciler.model.clock import Clock
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.workload import JobName
from solver.plan.plan import Plan
from solver.policy.policy import Policy

MIG_CONFIGS: Final = ("gpu-operator", "default-mig-parted-config")
"""Namespace and name of the ConfigMap that the GPU operator makes."""
READ_EVERY_S: Final = 60.0
"""The ConfigMap is read again after so long."""
_WORDS: Final[dict[Fate, str]] = {
    "made": "is partitioned as config {} says",
    "failed": "could not be partitioned as config {} says: its MIG manager says why",
    "overdue": "does not show what config {} says, and should by now: see its MIG manager and device plugin",
    "taken-over": "has another config than {}, which Quorate did not write, and is left alone",
}

_REASONS: Final[dict[Fate, str]] = {
    "made": "Partitioned",
    "failed": "PartitioningFailed",
    "overdue": "PartitioningOverdue",
    "taken-over": "PartitioningTakenOver",
}
_ON_RECORD: Final = {
    "Partitioning": "partitions",
    "PartitioningRefused": "partition-refused",
    "Partitioned": "partitioned",
    "PartitioningFailed": "partition-failed",
    "PartitioningOverdue": "partition-failed",
    "PartitioningTakenOver": "partition-taken-over",
}
"""What history calls what Events say."""


class _Nodes(msgspec.Struct, frozen=True):
    items: tuple[KubeNode, ...]


class _Sent(NamedTuple):
    """`version`: that of the node for which alone the write is good. `made`: the one that it made; None: it was not answered."""

    version: str
    made: int | None = None

    def is_seen_in(self, node: KubeNode | None) -> bool:
        """resourceVersions of one kind may be compared as numbers (KEP-5504)."""
        seen = _version(node)
        return not seen or (seen != self.version if self.made is None else int(seen) >= self.made)


@dataclass
class MigPartitioner:
    """`configs`: namespace and name of the ConfigMap. `note` and `happened` are told of nodes.

    Every method raises NotLeaderError. What the server refuses is looked at again in the next pass.
    """

    api: Api
    leading: LeaderSource
    configs: tuple[str, str]
    clock: Clock
    note: Callable[[str, str, str], object]
    happened: Callable[[Iterable[Occurrence]], object]
    log: FilteringBoundLogger
    _known: tuple[NamedConfig, ...] = ()
    _why_not: str = ""
    _read_at_s: float | None = None
    _sent: dict[NodeName, _Sent] = field(default_factory=dict)
    """Nodes that were written. As long as they show the same version, the write may still be on its way."""
    _refused: dict[NodeName, Instant] = field(default_factory=dict)
    """Nodes for which no config was found, and when."""
    _follows: Mapping[str, str] = field(default_factory=dict)
    """The holder as which it has looked at what leaders before have written."""
    _waiting: set[JobName] = field(default_factory=set)
    """Jobs that were told that they wait for a node."""

    async def follow(self, node: Callable[[NodeName], KubeNode | None]) -> None:
        """Once in each epoch: what leaders before have written has to be seen too. Raises KubernetesError."""
        stamp = self.leading.leadership().stamp
        if stamp == self._follows:
            return
        managed = await self.api.get(NODES.path(), _Nodes, {"labelSelector": names.MIG_CONFIG})
        for one in managed.items:
            name, version = NodeName(one.metadata.name), _version(node(NodeName(one.metadata.name)))
            if names.MIG in one.metadata.annotations and int(version or 0) < int(one.metadata.resource_version):
                self._sent[name] = _Sent(version, int(one.metadata.resource_version))
        self._follows = stamp

    def is_seen(self, node: Callable[[NodeName], KubeNode | None]) -> bool:
        """Whether the nodes that were written are seen to be, but for those whose write was not answered."""
        self._sent = {name: sent for name, sent in self._sent.items() if not sent.is_seen_in(node(name))}
        return all(sent.made is None for sent in self._sent.values())

    async def looked(self, policy: Policy, sight: Sight, nodes: Iterable[KubeNode]) -> Sight:
        """The look with what is known of MIG; on nodes whose changes have ended it is written that they have."""
        now, wires = self.clock.now(), list(nodes)
        for wire in wires:
            if names.MIG in wire.metadata.annotations:
                await self._settle(wire, now)
        if any(known.mode != "fixed" for known in policy.mig):
            await self._read()
        known = geometry_of(policy, sight, wires, now, self._why_not)
        left_alone = {name: why for name, why in self._left_alone(now).items() if name in known.rules}
        return with_geometry(sight, replace(known, kept={**known.kept, **left_alone}), now)

    async def ready(self, plan: Plan, sight: Sight, wanted: Sequence[GangBinding]) -> tuple[GangBinding, ...]:
        """Ask for what a plan wants of nodes; the gangs that may be bound now.

        Those that wait for a node are decided about anew in each round: until it is as it is to be, they are at home there.
        """
        unready = await self._relabel(plan, sight)
        ready = bindable(wanted, unready)
        waiting = {gang.job for gang in wanted} - {gang.job for gang in ready}
        words = "its GPUs are being partitioned: it is bound once they are there"
        first = [sight.gangs[job].members[0] for job in sorted(waiting - self._waiting)]
        self.happened([Occurrence(the_pod(member), WAITING, "Scheduling", words) for member in first])
        self._waiting = waiting
        return ready

    async def _relabel(self, plan: Plan, sight: Sight) -> frozenset[NodeName]:
        """Those on which no GPU is to be given out now."""
        unready = {*sight.geometry.changing, *self._sent}
        spent: Counter[str] = Counter()
        for name, wish in wishes_of(plan, sight):
            unready.add(name)
            pool = wish.geometry.pool
            choice = choose(self._known, wish._replace(changes_left=wish.changes_left - spent[pool]))
            if choice is None:
                self._refuse(name, wish)
                continue
            spent[pool] += choice.changed
            if await self._ask(sight, name, wish, choice):
                self._tell(name, "Partitioning", f"is to be partitioned as config {choice.config} says")
        return frozenset(unready)

    async def _settle(self, wire: KubeNode, now: Instant) -> None:
        change = change_on(wire)
        fate = fate_of(wire, change, now) if change else None
        if change and fate and fate != change.fate and await self._write(wire, ended_change(change, fate, now), {}):
            words = _WORDS[fate].format(change.config)
            self._tell(NodeName(wire.metadata.name), _REASONS[fate], words, warning=fate != "made")

    def _left_alone(self, now: Instant) -> dict[NodeName, str]:
        self._refused = {name: at for name, at in self._refused.items() if now < at.after(REST)}
        resting = dict.fromkeys(self._refused, "no config was found for it a short while ago")
        return resting | dict.fromkeys(self._sent, "what was written on it is not seen yet")

    async def _read(self) -> None:
        """The configs, from time to time. Where they can't be read no node is changed."""
        now_s = self.clock.monotonic_s()
        if self._read_at_s is not None and now_s < self._read_at_s + READ_EVERY_S:
            return
        self._read_at_s, before = now_s, self._why_not
        try:
            found = await self.api.get(CONFIG_MAPS.path(*self.configs), dict[str, Any])
            self._known, self._why_not = read_configs((found.get("data") or {}).get(KEY, "")), ""
        except (KubernetesError, ConfigsUnreadableError) as error:
            self._known, self._why_not = (), f"the configs of the MIG manager can't be read: {error}"
        if self._why_not and self._why_not != before:
            self.log.warning("mig-configs-unreadable", config_map="/".join(self.configs), error=self._why_not)

    async def _ask(self, sight: Sight, name: NodeName, wish: GeometryRequest, choice: Choice) -> bool:
        wire, now = sight.geometry.nodes[name], self.clock.now()
        before = change_on(wire)
        change = MigChange(
            uid=wire.metadata.uid,
            config=choice.config,
            attempt=before.attempt + 1 if before else 1,
            asked_at=now,
            deadline=now.after(DEADLINE),
            gpus=wish.gpus,
            gpu_type=sight.cluster.index.nodes[name].gpu_type,
            slots=choice.slots,
            before=(*made_lately(before, now), Made(now, choice.changed)),
        )
        # What the state says is of the config before: it is not to be taken for that of this one.
        return await self._write(wire, change, {names.MIG_CONFIG: choice.config, names.MIG_STATE: None})

    async def _write(self, wire: KubeNode, change: MigChange, labels: dict[str, str | None]) -> bool:
        """Whether it is done, on the node as it was looked at."""
        name, version = NodeName(wire.metadata.name), wire.metadata.resource_version
        notes = {names.MIG: written(change), **self.leading.leadership().stamp}
        meta = {"uid": wire.metadata.uid, "resourceVersion": version, "labels": labels, "annotations": notes}
        self._sent[name] = _Sent(version)
        try:
            answer = await self.api.patch(NODES.path("", name), {"metadata": meta}, self.leading.leadership)
        except UnreachableError as unknown:
            self.log.warning("node-not-answered", node=name, error=str(unknown))
            return False
        except KubernetesError as refused:
            del self._sent[name]
            self.log.warning("node-not-written", node=name, error=str(refused))
            return False
        self._sent[name] = _Sent(version, int(answer["metadata"]["resourceVersion"]))
        return True

    def _refuse(self, name: NodeName, wish: GeometryRequest) -> None:
        self._refused[name] = self.clock.now()
        entries = as_written(_every_gpu(layouts_of(wish.target), wish.gpus))
        words = (
            f"no config gives what is wanted here within {max(0, wish.changes_left)} changes of its pool in this hour, other than"
            f" the one that its label says. Add to ConfigMap {'/'.join(self.configs)} one such as: {entries}"
        )
        self._tell(name, "PartitioningRefused", words, warning=True)

    def _tell(self, name: NodeName, reason: str, words: str, *, warning: bool = False) -> None:
        self.note(_ON_RECORD[reason], name, words)
        self.happened([Occurrence(Regarding("Node", "", name, name), reason, "Repartition", words, warning)])


def _version(node: KubeNode | None) -> str:
    return node.metadata.resource_version if node else ""


def _every_gpu(layouts: tuple[Layout, ...], gpus: int) -> tuple[Layout, ...]:
    """GPUs that share a slot with others are made whole in what people are advised to add."""
    return (*layouts, *(None,) * (gpus - len(layouts)))
