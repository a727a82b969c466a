"""Wherever the power goes between claims, growths, shrinks and releases: placements say what the ledger said at every instant."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text

from reconciler.protocols.ledger import Claim, ClaimRefusedError
from reconciler.protocols.placements import Steps
from reconciler.store.migrations import BASELINE
from solver.model.cluster import DeviceId, GpuType, MigInstance, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant, MilliGpu
from solver.model.workload import JobName, MigSlot, TaskPlacement
from tests.contracts.stores import NOW, SqlStores, intent_of, lead, postgresql_stores, sqlite_stores, submit
from tests.drawn import first
from tests.reconciler.store.earlier_schemas import take_back

NODES = tuple(NodeName(f"n{number}") for number in range(3))
STEPS = 60
WHOLE = int(MILLI_PER_GPU)
Held = Counter[tuple[str, str]]
"""Thousandths that each job has of each device."""


class PowerLostError(Exception):
    """The process is no more."""


@pytest.fixture(params=[sqlite_stores, pytest.param(postgresql_stores, marks=pytest.mark.postgresql)])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStores]:
    with request.param(tmp_path) as made:
        yield made


@contextmanager
def cut_off(engine: Engine, after: int) -> Iterator[None]:
    """The power goes before so many statements and commits more; where there are fewer, after the last."""
    left = after

    def count(*_: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise PowerLostError

    for heard in ("before_cursor_execute", "commit"):
        event.listen(engine, heard, count)
    try:
        with suppress(PowerLostError):
            yield
    finally:
        for heard in ("before_cursor_execute", "commit"):
            event.remove(engine, heard, count)


def task_on(index: int, node: NodeName, gpu: int, chance: random.Random) -> TaskPlacement:
    """GPU 0 is cut into instances, 1 is shared, others are given whole."""
    device = DeviceId(f"{node}/{gpu}")
    if gpu == 0:
        cut = MigInstance("1g.10gb", chance.randrange(7))
        return TaskPlacement("worker", index, node, (cut.id_on(device),), mig=MigSlot(device, cut, MilliGpu(125)))
    if gpu == 1:
        part = MilliGpu(chance.choice((250, 500)))
        return TaskPlacement("worker", index, node, (device,), share=part, sharing="time-slicing")
    return TaskPlacement("worker", index, node, (device,))


class Story:
    """Random writes to a ledger, and what it said from each on."""

    def __init__(self, stores: SqlStores, seed: int) -> None:
        self.stores, self.chance, self.now, self.jobs = stores, random.Random(seed), NOW, 0
        self.epoch = lead(stores)
        self.said: list[tuple[Instant, Held]] = []

    def go_on(self) -> None:
        self.now = self.now.after(self.chance.randrange(1, 1_000))
        write = self.chance.choice((self.begin, self.begin, self.grow, self.shrink, self.release))
        if self.chance.random() < 0.4:
            with cut_off(self.stores.database.engine, self.chance.randrange(1, 30)):
                write()
            self.stores.reopen()
            self.epoch = lead(self.stores, now=self.now)
        else:
            write()
        self.said.append((self.now, held_by(self.stores.ledger.claims())))

    def begin(self) -> None:
        tasks = (
            task_on(index, self.chance.choice(NODES), self.chance.randrange(5), self.chance)
            for index in range(self.chance.randrange(1, 4))
        )
        self.jobs += 1
        claim = Claim(JobName(f"j{self.jobs}"), 1, tuple(tasks), self.now, gpu_types=(("worker", GpuType("H100")),))
        submit(self.stores, claim.job)
        with suppress(ClaimRefusedError):
            self.stores.ledger.claim(self.epoch, claim, intent_of(claim))
            self.stores.ledger.confirm_running(self.epoch, claim.job, 1, self.now)

    def grow(self) -> None:
        for claim in self._any():
            task = task_on(10 + claim.growth, self.chance.choice(NODES), self.chance.randrange(5), self.chance)
            asked = Intent("grow", claim.job, 1, self.now, self.now.after(1), (task,))
            with suppress(ClaimRefusedError):
                self.stores.ledger.grow(self.epoch, asked)
                self.stores.ledger.confirm_grown(self.epoch, claim.job, 1)

    def shrink(self) -> None:
        for claim in self._any():
            asked = Intent("shrink", claim.job, 1, self.now, self.now.after(1), claim.tasks[1:])
            self.stores.ledger.ask(self.epoch, asked)
            self.stores.ledger.confirm_shrunk(self.epoch, claim.job, 1, self.now)

    def release(self) -> None:
        for claim in self._any():
            self.stores.ledger.release(self.epoch, claim.job, 1, self.now)

    def _any(self) -> list[Claim]:
        claims = self.stores.ledger.claims()
        return [self.chance.choice(claims)] if claims else []


def held_by(claims: tuple[Claim, ...]) -> Held:
    held: Held = Counter()
    for task, job in ((task, claim.job) for claim in claims for task in claim.tasks):
        for device in task.devices:
            held[device, job] += int(task.share or WHOLE)
    return held


def placed_at(stores: SqlStores, at: Instant) -> Held:
    """What placements say was held then; fails where a GPU would be held by more than it is."""
    held: Held = Counter()
    of_gpu: Counter[str] = Counter()
    for placed in stores.placements.on_nodes(NODES, at, at.after(1), 1_000):
        assert placed.gpus == sum(task.gpus for task in placed.tasks)
        for task in placed.tasks:
            for device in task.devices:
                held[device, placed.placement.job] += WHOLE if task.instance_of else int(task.gpus)
                of_gpu[task.instance_of or device] += int(task.gpus)
    assert not {gpu: milli for gpu, milli in of_gpu.items() if milli > WHOLE}
    return held


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_placements_are_what_the_ledger_said_at_every_instant(stores: SqlStores, seed: int) -> None:
    story = Story(stores, seed)
    for _ in range(STEPS):
        story.go_on()
    for (since, said), (until, _) in zip(story.said, [*story.said[1:], (story.now.after(1), Counter())], strict=True):
        assert placed_at(stores, since) == said
        assert placed_at(stores, until.after(-1)) == said
    assert any(said for _, said in story.said)


@pytest.mark.parametrize("seed", first(2, range(4)))
def test_use_is_the_integral_of_placements(stores: SqlStores, seed: int) -> None:
    story, chance = Story(stores, seed), random.Random(seed)
    for _ in range(STEPS):
        story.go_on()
    span = story.now - NOW
    for _ in range(10):
        steps = Steps(
            NOW.after(chance.randrange(-500, span)), Duration(chance.randrange(1, 3_000)), chance.randrange(1, 9)
        )
        now = steps.start.after(chance.randrange(steps.end - steps.start + 100))
        expected = defaultdict[tuple[str, int], int](int)
        for placed in stores.placements.on_nodes(NODES, Instant(0), story.now.after(10**9), 10_000):
            ended = min(placed.placement.until or now, now)
            for number in range(steps.number):
                start = steps.start.after(steps.step * number)
                overlap = min(ended, start.after(steps.step)) - max(placed.placement.since, start)
                expected[placed.node, number] += max(0, overlap) * int(placed.gpus)
        used = {key: use for key, use in expected.items() if use}
        found = stores.placements.use_of_nodes(NODES, steps, now).items()
        assert {(node, number): use for node, uses in found for number, use in enumerate(uses) if use} == used
        assert sum(map(sum, stores.placements.use_of_queues(steps, now).values())) == sum(used.values())


def test_claims_of_a_program_that_kept_no_placements_are_adopted(stores: SqlStores) -> None:
    story = Story(stores, 5)
    while len(stores.ledger.claims()) < 3:
        story.go_on()
    claims = stores.ledger.claims()
    with stores.database.engine.begin() as connection:  # it released one, and took in the others
        connection.execute(text("DELETE FROM claims WHERE job = :job"), {"job": claims[0].job})
        connection.execute(text("DELETE FROM placements WHERE job = :job"), {"job": claims[1].job})
    stores.reopen()
    lead(stores, now=story.now)
    assert placed_at(stores, story.now) == held_by(claims[1:])
    (lost, *_) = reversed(stores.placements.of_job(claims[0].job))
    assert (lost.placement.ended, lost.placement.until) == ("lost", story.now)
    assert {each.placement.attempt for each in stores.placements.of_job(claims[1].job)} == {1}


def test_running_jobs_are_there_after_an_upgrade_from_a_release_without_placements(tmp_path: Path) -> None:
    with sqlite_stores(tmp_path) as stores:
        story = Story(stores, 3)
        while not stores.ledger.claims():
            story.go_on()
        claims = stores.ledger.claims()
        with stores.database.engine.begin() as connection:
            take_back(connection, BASELINE)
        stores.reopen()
        assert placed_at(stores, story.now) == Counter()
        lead(stores, now=story.now)
        assert placed_at(stores, story.now) == held_by(claims)
