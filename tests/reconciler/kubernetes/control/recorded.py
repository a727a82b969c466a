"""A cluster of pods in memory, and leaders that now and then keep what they see of it in a real store; time is the test's own."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.analysis.showback.account import GpuAccount, account_of
from reconciler.kubernetes.control.pod_recorder import Led, PodRecorder
from reconciler.kubernetes.control.sight import Remembered, Sight, cluster_sight, snapshot_from
from reconciler.kubernetes.objects.pod_view import PodIndex
from reconciler.kubernetes.objects.wire import KubeNode, Pod, read
from reconciler.kubernetes.objects.world import ClusterModel
from reconciler.protocols.backend import Epoch
from reconciler.store.store import SqlStore
from solver.model.quantities import Duration, Instant
from tests.reconciler.kubernetes.control.followed import NOW, POLICY
from tests.reconciler.kubernetes.samples import Sent, node, pod

EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
LEASE = Duration(1 << 40)


def at(second: float) -> Instant:
    return NOW.after(int(second * 1_000))


def written(second: float) -> str:
    """As the API server writes it: whole seconds."""
    return str(Instant(at(second) // 1_000 * 1_000))


def bound(name: str, on: str, second: float, *devices: int, **said: Any) -> Sent:
    """A pod that was bound then, to these devices, and runs."""
    ids = ",".join(f"{on}/{device}" for device in devices)
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": written(second)}
    annotations = {"quorate.dev/devices": ids, "quorate.dev/attempt": "1", **said.pop("annotations", {})}
    more = {"annotations": annotations, "status": {"conditions": [scheduled]}}
    return pod(name, len(devices), on, **{**more, **said})


def over(sent: Sent, second: float, phase: str = "Succeeded", *conditions: Sent, deleted: float | None = None) -> Sent:
    """The same pod, whose container ended then."""
    status = sent["status"]
    ended = {"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": written(second)}}}
    meta = sent["metadata"] | ({} if deleted is None else {"deletionTimestamp": written(deleted)})
    more = {"phase": phase, "containerStatuses": [ended], "conditions": [*status["conditions"], *conditions]}
    return {**sent, "metadata": meta, "status": {**status, **more}}


class Leader:
    """A process with watches of its own. What it remembers goes with it."""

    def __init__(self, store: SqlStore, number: int, now: Instant) -> None:
        self.store = store
        self.world, self.pods = ClusterModel(), PodIndex()
        self.recorder = PodRecorder(store.pod_placements, store.capacities)
        epoch = store.ledger.lead(f"leader-{number}", now, LEASE)
        self.led = Led(Epoch(number), epoch)
        self._shown: dict[str, Any] = {}

    def show(self, objects: dict[str, Any]) -> None:
        """As watches do, one by one: what came, changed and went since it was shown last."""
        for name in sorted(self._shown.keys() | objects.keys()):
            before, after = self._shown.get(name), objects.get(name)
            if before is after or (before is not None and before == after):
                continue
            if isinstance(before or after, KubeNode):
                self.world.node(before, after)
                continue
            steps = [(before, after)]
            if before and after and before.metadata.uid != after.metadata.uid:
                steps = [(before, None), (None, after)]
            for one, other in steps:
                self.world.pod(one, other)
                self.pods.change(one, other)
        self._shown = dict(objects)

    def look(self, now: Instant) -> Sight:
        """One pass, as far as it is about what is kept."""
        sight = cluster_sight(self.world.cluster(), self.pods.view(), {}, Duration(300_000), now)
        snapshot = snapshot_from(now, sight, POLICY, (), Remembered())
        self.recorder.keep(self.led, sight, self.pods.take_gone(), snapshot)
        return sight


class Recorded:
    """The objects of a cluster, and who leads it."""

    def __init__(self, store: SqlStore, nodes: int = 1, gpus: int = 8) -> None:
        self.store = store
        self.objects: dict[str, Any] = {
            f"node/n{number}": read(node(f"n{number}", gpus), KubeNode) for number in range(1, nodes + 1)
        }
        self._leaders = 0
        self.leader = self.lead(0)

    def lead(self, second: float) -> Leader:
        """Another leads from now on; what there is it reads for the first time."""
        self._leaders += 1
        self.store.ledger.lead(f"leader-{self._leaders - 1}", at(second), Duration(1))
        self.leader = Leader(self.store, self._leaders, at(second + 10))
        self.leader.show(self.objects)
        return self.leader

    def put(self, *sent: Sent) -> None:
        for one in sent:
            self.objects[f"pod/{one['metadata']['name']}"] = read(msgspec.json.encode(one), Pod)
        self.leader.show(self.objects)

    def drop(self, *names: str) -> None:
        for name in names:
            del self.objects[f"pod/{name}"]
        self.leader.show(self.objects)

    def look(self, second: float) -> None:
        self.leader.look(at(second))

    def account(self, start: float, end: float) -> GpuAccount:
        window = at(start), at(end)
        return account_of(*window, self.store.capacities.spans(*window), self.store.placements.in_window(*window))

    def told(self) -> list[tuple[str, int, float, float | None, str]]:
        """Every placement: job, attempt, from when to when in seconds, and why no longer."""
        found = self.store.placements.in_window(at(-(10**6)), at(10**6))
        return sorted(
            (
                one.placement.job.removeprefix("vision.pod."),
                one.placement.attempt,
                (one.placement.since - NOW) / 1_000,
                None if one.placement.until is None else (one.placement.until - NOW) / 1_000,
                one.placement.ended,
            )
            for one in found
        )
