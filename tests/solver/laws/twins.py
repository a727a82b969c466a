"""Twin worlds: one need of a queue, stated as it is and stated so as to get more; and what the second statement gains.

Queue `q` is the user's. Its work is blocks of tasks of one GPU each, which run or wait. All else is the same in both worlds, and
so is what the queue is due: its guarantee, or its fair share where that is more. Nothing is gained where, once rounds rest,

- `taken`: a queue that took more GPUs from others than its twin holds no more than it was due in some round, or than its twin
  holds. Small and elastic jobs lawfully reach what a gang of the same GPUs can't: a guarantee is a count, and not a shape. So they
  may hold more than their twin, and no more than is due. What is idle belongs to nobody, and is no gain;
- `others`: no other queue has fewer GPUs inside its guarantees.

Statements that nothing serves which would not serve the honest one (gangs for small jobs, more cores, not preemptible, other
names) gain no more by what they keep either:

- `inside`: the queue holds no more of what it is due than its twin;
- `kept`: if it gave others less than its twin, it holds no more than it is due, or than its twin holds.

The rules divide no job (DESIGN 5, amendment 1): a gang of three leaves for a claim of one as a whole, or not at all. So where the
user has such gangs, in one world or the other, what it keeps and what others have is open by as much as these are larger than one
GPU; and where others have them, all counts are. Where the jobs of all others have one GPU each, nothing else is open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import NamedTuple

from tests.solver.laws.book import GPU, Book
from tests.solver.laws.loop import Course, Decide, course_lines, course_of
from tests.solver.laws.renaming import renamed
from tests.solver.laws.worlds import World, text_of, world_of

USER = "q"
CORES = 96
"""Of a node, however many GPUs it has."""
HEAVIER = 3
"""How many times what its GPUs carry a job with too many cores asks for."""


class Block(NamedTuple):
    """Some tasks of the user, of one GPU each. `nodes`: where they run, () where they wait; `cores`: that a GPU carries."""

    name: str
    tasks: int
    nodes: tuple[str, ...]
    age: int
    cores: int

    def as_jobs(self, known: str = "mid", rest: str = "") -> Iterator[str]:
        """A job for each task."""
        for number in range(self.tasks):
            yield self._line("abcdef"[number], "1", self.nodes[number : number + 1], number, f"{known} {rest}")

    def as_gang(self, known: str = "mid", least: str = "") -> Iterator[str]:
        """One job for all; `least`: with how many tasks it would do."""
        yield self._line("", f"{least}{self.tasks}x1", self.nodes, 0, known)

    def _line(self, letter: str, size: str, nodes: Sequence[str], place: int, rest: str) -> str:
        where = f"@{','.join(nodes)}" if nodes else ""
        verb = "run" if nodes else "wait"
        return f"{verb} {self.name}{letter} {USER} {size}{where} for {self.age}.{place:03}m {rest}".rstrip()


Statement = Callable[[Block], Iterator[str]]


def _light(block: Block) -> Iterator[str]:
    return block.as_jobs(rest=f"cpu={block.cores}")


def _heavy(block: Block) -> Iterator[str]:
    return block.as_jobs(rest=f"cpu={HEAVIER * block.cores}")


def _elastic(block: Block) -> Iterator[str]:
    return block.as_gang(least="1-")


def _firm(block: Block) -> Iterator[str]:
    return block.as_jobs("firm")


def _firm_gang(block: Block) -> Iterator[str]:
    return block.as_gang("firm")


STATEMENTS: dict[str, tuple[Statement, Statement]] = {
    "gang": (Block.as_jobs, Block.as_gang),
    "tiny": (Block.as_gang, Block.as_jobs),
    "elastic": (Block.as_gang, _elastic),
    "heavy": (_light, _heavy),
    "firm": (Block.as_jobs, _firm),
    "firm-gang": (Block.as_gang, _firm_gang),
    "names": (Block.as_jobs, Block.as_jobs),
}
"""By kind of gaming, how the honest twin and the gaming one state a block."""

NO_EASIER = ("gang", "heavy", "firm", "firm-gang", "names")
"""Kinds whose statement is served by nothing that would not serve the honest one."""


# Worlds.


@dataclass
class _Draft:
    """A world while it is drawn. `single`: the jobs of others have one GPU each."""

    random: Random
    firm: bool
    single: bool = False
    free: dict[str, int] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """All but the user's work, of which it makes blocks."""
        random = self.random
        self.single = random.random() < 0.5
        sizes = [random.randint(2, 5) for _ in range(random.choice((1, 2, 2, 3)))]
        self.free = {f"n{number}": gpus for number, gpus in enumerate(sizes, 1)}
        yield "nodes " + " ".join(f"{name}={gpus}" for name, gpus in self.free.items())
        yield from ["rules reclaim=guaranteed"] * (random.random() < 0.15)
        yield from ["class low -1", "class mid 0", *["class firm 0 fixed"] * self.firm]
        queues = random.choice((("q", "r"), ("q", "r", "s"), ("x", "q", "r", "s")))
        yield from self._queues(queues, sum(sizes))
        yield from self._jobs([name for name in queues if name in "rs"], CORES * len(sizes) // sum(sizes))

    def _queues(self, names: Sequence[str], total: int) -> Iterator[str]:
        """Guarantees add up to no more than there is, and below a queue to no more than its own."""
        random, left, below = self.random, total, 0
        for name in names:
            inside = name in "qr" and "x" in names
            most = below if inside else left
            said = random.choice((None, 0, random.randint(0, most), random.randint(0, most)))
            if self.firm and name in ("x", USER):
                said = random.randint(min(1, most), most)
            below, left = (below - (said or 0), left) if inside else (below, left - (said or 0))
            below = said or 0 if name == "x" else below
            weight = random.choice(("", "", "", " weight=2"))
            yield f"queue {name}{' in x' if inside else ''} {'-' if said is None else said}{weight}"

    def _jobs(self, others: Sequence[str], cores: int) -> Iterator[str]:
        random, ages = self.random, self.random.sample(range(10, 600), 12)
        for place in range(random.randint(2, 6 if self.single else 5)):
            mine = random.random() < 0.35
            tasks = random.randint(2, 4) if mine else 1 if self.single else random.randint(1, 3)
            nodes = self._places(tasks)
            if mine and nodes:
                self.blocks.append(Block(f"u{place}", tasks, nodes, ages[place], cores))
            elif nodes:
                size = f"{'1-' if tasks > 1 and random.random() < 0.5 else ''}{tasks}x1@{','.join(nodes)}"
                yield f"run o{place} {random.choice(others)} {size} for {ages[place]}m {random.choice(('low', 'mid'))}"
        for place in range(6, 6 + random.randint(1, 2)):
            self.blocks.append(Block(f"u{place}", random.randint(2, 3), (), ages[place] // 4, cores))
        for place in range(8, 8 + random.choice((0, 1, 1, 2))):
            size = random.choice(("1",) if self.single else ("1", "2", "2x1", "1-2x1", "3x1"))
            age = f"{ages[place] // 4}.{place}m"
            yield f"wait o{place} {random.choice(others)} {size} for {age} {random.choice(('low', 'mid'))}"

    def _places(self, tasks: int) -> tuple[str, ...]:
        if sum(self.free.values()) < tasks:
            return ()
        found = list[str]()
        for _ in range(tasks):
            name = self.random.choice([name for name, gpus in self.free.items() if gpus])
            self.free[name] -= 1
            found.append(name)
        return tuple(found)


class Twins(NamedTuple):
    """The same need twice. `user`: the queue that states it, by its name in the gaming world; `names`: what became which."""

    honest: World
    gaming: World
    names: dict[str, str]


def drawn_twins(kind: str, number: int, seed: int = 0) -> Twins:
    """Twins `number` of a kind."""
    random = Random(f"twins/{seed}/{number}")
    while True:
        draft = _Draft(random, firm=kind.startswith("firm"))
        lines = list(draft.lines())
        honest, gaming = (
            world_of("\n".join([*lines, *(line for block in draft.blocks for line in statement(block))]))
            for statement in STATEMENTS[kind]
        )
        if _can_be(honest) and _can_be(gaming):
            names = {str(queue.name): str(queue.name) for queue in honest.policy.queues}
            if kind == "names":
                gaming, names = renamed(honest, 1)
            return Twins(honest, gaming, names)


def _can_be(world: World) -> bool:
    """Whether all that waits could start one day, and what is not preemptible runs inside its guarantee."""
    book = Book.of(*world)
    firm = [job for job in book.running if not job.preemptible]
    inside = all(book.fixed[name] <= book.guaranteed[name] for job in firm for name in book.path(job.queue))
    return inside and all(map(book.admissible, book.waiting))


# What is gained.


@dataclass(frozen=True)
class Pair:
    """How both twins end, in milli-GPU."""

    kind: str
    twins: Twins
    honest: Course
    gaming: Course

    @classmethod
    def of(cls, kind: str, number: int, decide: Decide) -> Pair:
        """Twins `number` of a kind, and what a way to decide makes of them."""
        twins = drawn_twins(kind, number)
        return cls(kind, twins, course_of(twins.honest, decide), course_of(twins.gaming, decide))

    @property
    def user(self) -> str:
        """The queue, by its name in the gaming world."""
        return self.twins.names[USER]

    @cached_property
    def due(self) -> int:
        """What the rules give the queue at most in any round: its guarantee, or its fair share by the reading best for it."""
        books = [(USER, Book.of(*self.twins.honest)), (self.user, self.gaming.book)]
        books += [(self.user, held.book) for held in self.gaming.rounds]
        return max(
            min(max(fair[name], book.guaranteed[name]) for name in book.path(user))
            for user, book in books
            for fair in book.divisions
        )

    @cached_property
    def open(self) -> int:
        """By how much counts are open, since jobs of others can't be divided."""
        return _largest(self.twins.honest, lambda queue: queue != USER) - GPU

    @cached_property
    def own(self) -> int:
        """By how much they are, since the user's own can't, by the one statement or the other."""
        mine = _largest(self.twins.honest, lambda queue: queue == USER)
        return max(mine, _largest(self.twins.gaming, lambda queue: queue == self.user)) - GPU

    def gains(self) -> dict[str, int]:
        """By law, how much is gained, where it is more than nothing."""
        (mine, taken, given), (theirs, twin_taken, twin_given) = self._got(self.gaming), self._got(self.honest)
        beyond = mine - max(theirs, self.due)
        found = {"others": self._lost_by_others() - self.own - self.open}
        if taken > twin_taken:
            found["taken"] = beyond - self.open
        if self.kind in NO_EASIER:
            keeps = given < twin_given
            found["inside"] = min(mine, self.due) - min(theirs, self.due) - self.open - keeps * self.own
            found["kept"] = beyond - self.open - self.own if keeps else 0
        return {law: milli for law, milli in found.items() if milli > 0}

    def _got(self, course: Course) -> tuple[int, int, int]:
        """What the queue holds at rest, what others gave up for it, and what it gave up for others."""
        user = USER if course is self.honest else self.user
        queues = {name: job.queue for name, job in course.book.jobs.items()}
        taken = given = 0
        for held in course.rounds:
            for step in held.evictions:
                milli = sum(part.milli for part in held.parts(step))
                giver, taker = queues[str(step.job)], queues[str(step.beneficiary)]
                taken += milli if giver != taker == user else 0
                given += milli if taker != giver == user else 0
        return course.book.used[user], taken, given

    def _lost_by_others(self) -> int:
        """By how much fewer GPUs another queue has inside its guarantees: the queue that loses most."""

        def inside(book: Book, queue: str) -> int:
            return min(book.used[queue], *(book.guaranteed[name] for name in book.path(queue)))

        book, other = self.honest.book, self.gaming.book
        leaves = [name for name in book.parent if not book.below(name) and name != USER]
        return max((inside(book, name) - inside(other, self.twins.names[name]) for name in leaves), default=0)

    def lines(self) -> Iterator[str]:
        """Both of them, as a person reads them."""
        for about, course in (("honest", self.honest), ("gaming", self.gaming)):
            held, taken, given = (milli / GPU for milli in self._got(course))
            yield f"{about}: {held:g} GPUs at rest of {self.due / GPU:g} due, {taken:g} taken, {given:g} given"
            yield text_of(course.world, settings=course is self.honest)
            yield from course_lines(course)


def _largest(world: World, of: Callable[[str], bool]) -> int:
    """The most that a job of some queues needs to run at all."""
    return max((job.need for job in Book.of(*world).jobs.values() if of(job.queue)), default=GPU)


def twin_lines(kind: str, numbers: Sequence[int], decide: Decide, show: int) -> Iterator[str]:
    """How often each law is broken by twins of a kind, and some of those that do."""
    count, shown = Counter[str](), 0
    for number in numbers:
        pair = Pair.of(kind, number, decide)
        gains = pair.gains()
        count.update(gains.keys())
        if gains and shown < show:
            shown += 1
            yield f"# {kind} {number}: " + ", ".join(f"{law} {milli / GPU:g}" for law, milli in sorted(gains.items()))
            yield from pair.lines()
    yield f"{len(numbers)} twins, {kind}: {', '.join(f'{law} {n}' for law, n in sorted(count.items())) or 'nothing gained'}"
