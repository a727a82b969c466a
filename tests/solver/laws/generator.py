"""Random tiny worlds, each by its number: at most four nodes of six GPUs, four leaf queues and eight jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations
from random import Random

import msgspec

from solver.model.quantities import MilliGpu
from solver.model.snapshot import snapshot_of
from solver.policy.policy import Policy, Queue, policy_of
from tests.solver.laws.book import GPU, Book, Worker
from tests.solver.laws.worlds import World, text_of, world_of

JOBS_MAX = 8
TRIES = 3
SHARES = (0.25, 0.5)


def drawn(number: int, seed: int = 0, *, parts: bool = False, strewn: bool = False) -> World:
    """World `number` of a seed. `parts`: some jobs ask for parts of GPUs; `strewn`: these are all over, and large ones wait."""
    random = Random(f"{seed}/{number}/{'strewn' if strewn else parts}")
    while True:
        world = _settled(world_of("\n".join(_Draft(random, parts or strewn, strewn).lines())), random)
        book = Book.of(*world)
        if book.waiting and len(book.running) > 1 and _costs_differ(book):
            return world_of(text_of(world))


@dataclass
class _Draft:
    """A world while it is drawn, line by line. `scattered`: small jobs are all over it, and larger ones wait."""

    random: Random
    parts: bool
    strewn: bool
    nodes: list[int] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    owed: list[str] = field(default_factory=list)
    scattered: bool = False

    def lines(self) -> Iterator[str]:
        random = self.random
        self.scattered = self.strewn or random.random() < 0.15
        self.nodes = [random.randint(1, 6) for _ in range(random.choice((1, 1, 2, 2, 3, 4)))]
        if self.scattered:
            self.nodes = [random.randint(2, 4) for _ in range(random.randint(2, 3))]
        self.ages = random.sample(range(1, 600), 2 * JOBS_MAX)
        yield "nodes " + " ".join(f"n{number}={gpus}" for number, gpus in enumerate(self.nodes, 1))
        yield "rules " + " ".join(self._rules())
        classes = list(self._classes())
        yield from classes
        leaves = list(self._queues())
        yield from (line for line, _ in leaves)
        names = [name for _, name in leaves if name]
        yield from self._jobs(names, [line.split()[1] for line in classes])

    def _rules(self) -> Iterator[str]:
        random = self.random
        yield from ["reclaim=guaranteed"] * (random.random() < 0.2)
        yield from [f"minGain={random.choice((0.25, 0.5))}"] * (random.random() < 0.15)
        yield from ["moves=0"] * (random.random() < 0.3)
        yield from ["backOff=60s"] * (random.random() < 0.3)
        yield from ["shared"] * self.parts

    def _classes(self) -> Iterator[str]:
        random = self.random
        shields = ("minRuntime=20m", "minRuntime=90m", "coolDown=30m", "perDay=1")
        for name, value in random.sample((("low", -1), ("mid", 0), ("high", 1), ("top", 2)), random.randint(1, 3)):
            kind = random.random()
            fixed = " fixed" if kind < 0.12 else " fixed mayBorrow" if kind < 0.2 else ""
            shield = f" {random.choice(shields)}" if random.random() < 0.1 else ""
            yield f"class {name} {value}{fixed}{shield}"

    def _queues(self) -> Iterator[tuple[str, str]]:
        """Lines, and the names of those that have jobs."""
        random, total = self.random, sum(self.nodes)
        shape = random.choice(((0, 0), (0, 0, 0), (0, 0, 0, 0), (2, 0), (2, 0, 0), (2, 2), (3, 0), (1, 2)))
        left = total
        for number, children in enumerate(shape):
            name, said = "abcd"[number] if not children else "xyzw"[number], self._guarantee(left)
            left -= said or 0
            self.owed += [name] if said and not children else []
            yield f"queue {name} {'-' if said is None else said}{self._more()}", "" if children else name
            below = said or 0
            for child in range(1, children + 1):
                mine = random.choice((0, None)) if said is None else self._guarantee(below)
                below -= mine or 0
                self.owed += [f"{name}{child}"] if mine else []
                yield f"queue {name}{child} in {name} {'-' if mine is None else mine}{self._more()}", f"{name}{child}"

    def _guarantee(self, left: int) -> int | None:
        kind = self.random.random()
        return None if kind < 0.25 else 0 if kind < 0.5 else self.random.randint(0, left)

    def _more(self) -> str:
        weight = f" weight={self.random.randint(2, 3)}" if self.random.random() < 0.15 else ""
        reclaim = f" reclaim={self.random.choice(('guaranteed', 'fair-share'))}" if self.random.random() < 0.1 else ""
        return weight + reclaim

    def _jobs(self, queues: list[str], classes: list[str]) -> Iterator[str]:
        random = self.random
        free = {f"n{number}": [1.0] * gpus for number, gpus in enumerate(self.nodes, 1)}
        waiting = random.randint(1, 4)
        for number in range(JOBS_MAX):
            waits = number < waiting
            owed = waits and random.random() < (0.8 if self.scattered else 0.4)
            queue, known = random.choice(self.owed or queues if owed else queues), random.choice(classes)
            for _ in range(1 if waits else TRIES):
                wide = waits and random.random() < (0.8 if self.scattered else 0.3)
                least, most, gpus = self._small() if self.scattered and not waits else self._size(wide=wide)
                size = f"{f'{least}-' if least < most else ''}{most}x{gpus:g}"
                if waits:
                    yield f"wait j{number} {queue} {size} for {self.ages[number] // 2}.{number}m {known}"
                elif places := self._places(free, random.randint(least, most), gpus):
                    yield f"run j{number} {queue} {size}@{','.join(places)} for {self.ages[number]}.{number}m {known}"
                    break

    def _size(self, *, wide: bool = False) -> tuple[int, int, float]:
        random = self.random
        if wide:
            return 1, 1, random.randint(1, max(self.nodes))
        if self.parts and random.random() < 0.45:
            return (1, 1, random.choice(SHARES)) if random.random() < 0.7 else (2, 2, random.choice(SHARES))
        kind = random.random()
        if kind < 0.5:
            return 1, 1, random.choice((1, 1, 1, 2, 2, 3, 4))
        most, gpus = random.randint(2, 4), random.choice((1, 1, 2))
        return (most, most, gpus) if kind < 0.75 else (random.randint(1, most - 1), most, gpus)

    def _small(self) -> tuple[int, int, float]:
        return 1, 1, self.random.choice((*SHARES, *SHARES, 1)) if self.strewn else 1

    def _places(self, free: dict[str, list[float]], tasks: int, gpus: float) -> list[str]:
        """Where so many tasks are, on nodes in a random order; none where they do not fit."""
        before, found = {name: list(left) for name, left in free.items()}, list[str]()
        for _ in range(tasks):
            names = [name for name in free if self._has(free[name], gpus + self.scattered)]
            if not names:
                free.update(before)
                return []
            name = self.random.choice(names)
            found.append(self._take(name, free[name], gpus))
        return found

    def _has(self, left: list[float], gpus: float) -> bool:
        return left.count(1.0) >= gpus if gpus >= 1 else any(share >= gpus for share in left)

    def _take(self, name: str, left: list[float], gpus: float) -> str:
        if gpus >= 1:
            for number in [number for number, share in enumerate(left) if share == 1.0][: int(gpus)]:
                left[number] = 0.0
            return name
        able = [n for n, share in enumerate(left) if share >= gpus]
        number = self.random.choice(able) if self.strewn else min(able, key=lambda n: left[n])
        left[number] -= gpus
        return f"{name}/{number}"


def _settled(world: World, random: Random) -> World:
    """Without jobs that could never be as they are, and with a max here and there, which nothing breaks."""
    book = Book.of(*world)
    held = {job.name for job in book.running if not job.preemptible and not job.may_borrow and _is_beyond(book, job)}
    never = {job.name for job in book.waiting if not book.admissible(job)}
    jobs = [job for job in world.snapshot.jobs if job.name not in held | never]
    world = World(snapshot_of(world.snapshot.time, world.snapshot.nodes, jobs), world.policy)
    limited = World(world.snapshot, _with_limits(world.policy, Book.of(*world), random))
    book = Book.of(*limited)
    return limited if all(map(book.admissible, book.waiting)) else world


def _is_beyond(book: Book, job: Worker) -> bool:
    """Whether what is not preemptible holds more than is guaranteed somewhere on its path."""
    return any(book.fixed[name] > book.guaranteed[name] for name in book.path(job.queue))


def _with_limits(policy: Policy, book: Book, random: Random) -> Policy:
    def limited(queue: Queue) -> Queue:
        if random.random() > 0.15:
            return queue
        name = str(queue.name)
        most = max(book.used[name], book.guaranteed[name]) + GPU * random.randint(0, 2)
        most = -(-most // GPU) * GPU
        (quota,) = queue.quota
        return msgspec.structs.replace(queue, quota=(msgspec.structs.replace(quota, max=MilliGpu(most)),))

    queues = tuple(map(limited, policy.queues))
    return policy_of(queues, policy.priority_classes, policy.scheduling, policy.sharing)


def _costs_differ(book: Book) -> bool:
    """No two sets of running jobs lose the same, so that nothing but harm has to choose between them."""
    costs = [book.lost(job, job.milli) for job in book.running]
    sets = chain.from_iterable(combinations(costs, count) for count in range(1, len(costs) + 1))
    sums = [sum(chosen) for chosen in sets]
    return len(sums) == len(set(sums))
