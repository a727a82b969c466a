"""Random histories of pods, of which looks miss much, with kills and wrong clocks: no moment is left out or counted twice."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.analysis.showback.account import account_of
from reconciler.kubernetes.objects.wire import KubeNode, read
from reconciler.store.store import SqlStore
from tests.fresh_store import fresh_store
from tests.reconciler.kubernetes.control.recorded import EVICTED, Recorded, at, bound, over, written
from tests.reconciler.kubernetes.samples import Sent, node
from tests.reconciler.store.test_placement_stories import cut_off

NODES, GPUS = ("n1", "n2"), 4
STEPS_S = (1, 1, 2, 7, 40, 400)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    made = fresh_store(tmp_path / "store")
    yield made
    made.close()


@dataclass
class Pod:
    """What is true of a pod, in seconds. `is_traceless`: it was deleted before it said when it ended."""

    sent: Sent
    node: str
    devices: tuple[int, ...]
    since: int
    until: int | None = None
    is_traceless: bool = False


class PodStory:
    """What happens to pods, and who looks when. `step_s`: by how much clocks of leaders are wrong now and then."""

    def __init__(self, store: SqlStore, seed: int, step_s: int = 0) -> None:
        self.cluster = Recorded(store, len(NODES), GPUS)
        self.chance = random.Random(seed)
        self.second = 1
        self.step_s = step_s
        self.pods: dict[str, Pod] = {}
        self.there: set[str] = set()
        self.cluster.look(0)

    def go_on(self) -> None:
        self.second += self.chance.choice(STEPS_S)
        acts = (self.bind, self.bind, self.bind, self.end, self.end, self.sweep, self.vanish, self.cordon)
        for _ in range(self.chance.randrange(1, 5)):
            self.chance.choice(acts)()
        if self.chance.random() < 0.15:
            self.cluster.lead(self.second)
        if self.chance.random() < 0.6:
            self.look()

    def look(self) -> None:
        """With a clock that may be wrong, in a process that may be killed at any statement."""
        wrong = self.chance.choice((0, 0, -self.step_s, self.step_s))
        now = self.second + self.chance.random() * 0.9 + wrong
        if self.chance.random() < 0.3:
            with cut_off(self.cluster.store.database.engine, self.chance.randrange(1, 12)):
                self.cluster.look(now)
            if self.chance.random() < 0.5:
                self.cluster.lead(self.second)
        else:
            self.cluster.look(now)

    def running(self) -> list[str]:
        return sorted(name for name, pod in self.pods.items() if pod.until is None)

    def bind(self) -> None:
        on = self.chance.choice(NODES)
        busy = {gpu for name in self.running() if self.pods[name].node == on for gpu in self.pods[name].devices}
        free = [gpu for gpu in range(GPUS) if gpu not in busy]
        if not free:
            return
        devices = tuple(sorted(self.chance.sample(free, self.chance.randrange(1, len(free) + 1))))
        name = f"p{len(self.pods)}"
        sent = bound(name, on, self.second, *devices, created=written(self.second))
        self.pods[name] = Pod(sent, on, devices, self.second)
        self.there.add(name)
        self.cluster.put(sent)

    def end(self) -> None:
        if running := self.running():
            name = self.chance.choice(running)
            pod, is_evicted = self.pods[name], self.chance.random() < 0.3
            pod.until = self.second
            why = ("Failed", EVICTED) if is_evicted else (self.chance.choice(("Succeeded", "Failed")),)
            self.cluster.put(over(pod.sent, self.second, *why, deleted=self.second if is_evicted else None))

    def sweep(self) -> None:
        """Pods that are over are deleted, be it before anybody has looked."""
        for name in sorted(self.there):
            if self.pods[name].until is not None and self.chance.random() < 0.7:
                self.there.remove(name)
                self.cluster.drop(name)

    def vanish(self) -> None:
        """By force: it is gone at once, and says nothing."""
        if (running := self.running()) and self.chance.random() < 0.3:
            name = self.chance.choice(running)
            self.pods[name].until, self.pods[name].is_traceless = self.second, True
            self.there.remove(name)
            self.cluster.drop(name)

    def cordon(self) -> None:
        name = self.chance.choice(NODES)
        is_closed = self.chance.random() < 0.5
        self.cluster.objects[f"node/{name}"] = read(node(name, GPUS, spec={"unschedulable": is_closed}), KubeNode)
        self.cluster.leader.show(self.cluster.objects)


def adds_up(story: PodStory) -> None:
    """In windows of any length each GPU's time is there once, and what pods held is what was allocated."""
    end = story.second + 2 * story.step_s + 50
    moments = sorted({0, end, *(story.chance.randrange(1, end) for _ in range(6))})
    store, allocated = story.cluster.store, []
    for begun, over_at in [(0, end), *itertools.pairwise(moments)]:
        start, until = at(begun), at(over_at)
        placed = store.placements.in_window(start, until)
        account = account_of(start, until, store.capacities.spans(start, until), placed)
        assert account.overheld == 0
        assert sum(map(account.capacity, account.totals)) == len(NODES) * GPUS * 1_000 * (until - start)
        allocated.append(sum(of["allocated"] for of in account.totals.values()))
        assert sum(piece.amount for piece in account.held) == allocated[-1]
    assert allocated[0] == sum(allocated[1:]) > 0


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 12))])
def test_what_is_on_record_is_what_pods_held(store: SqlStore, seed: int) -> None:
    story = PodStory(store, seed)
    for _ in range(40):
        story.go_on()
    story.second += 1
    story.cluster.look(story.second)
    adds_up(story)
    told = {job: (since, until, ended) for job, _, since, until, ended in story.cluster.told()}
    assert len(told) == len(story.cluster.told())
    for name, pod in story.pods.items():
        if name not in told:
            assert name not in story.there  # it came and was gone while none led
            continue
        since, until, ended = told[name]
        assert since == pod.since
        if not pod.is_traceless and ended != "unseen":
            assert until == pod.until
    known = [story.pods[name] for name in told]
    assert len(known) > len(story.pods) * 0.7


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 12))])
def test_with_clocks_that_are_wrong_it_adds_up_still(store: SqlStore, seed: int) -> None:
    story = PodStory(store, seed, step_s=30)
    for _ in range(40):
        story.go_on()
    adds_up(story)
