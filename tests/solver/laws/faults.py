"""Worlds in which rounds were seen to decide wrongly, each in several sizes and ages, and what should become of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from solver.model.parts import owner_of
from solver.plan.plan import Evict, Shrink, Waits
from solver.policy.division import MigChanges, MigGeometry
from solver.policy.policy import policy_of
from tests.solver.laws.judge import production
from tests.solver.laws.loop import Course, Decide, course_of
from tests.solver.laws.renaming import renamed
from tests.solver.laws.worlds import POOL, World, world_of


@dataclass(frozen=True)
class Outcome:
    """What should become of a world. `runs`, `waits`: at rest; `evictions`: of which queues how many jobs leave or shrink, over
    all rounds; `gives`: of which queues how many GPUs leave; `stays`: who never leaves. None: whatever it is.
    """

    runs: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    evictions: dict[str, int] | None = None
    gives: dict[str, float] | None = None
    stays: tuple[str, ...] = ()
    shrinks_only: bool = False
    once: bool = True
    also: Callable[[Course], str] | None = None

    def problem(self, course: Course) -> str:
        """The first thing that is not as it should be; "" where all is."""
        return next(filter(None, self._problems(course)), "")

    def _problems(self, course: Course) -> Iterator[str]:
        if not course.rests:
            yield "does not come to rest"
        at_rest = {str(job.name): job for job in course.end.jobs}
        steps = [step for held in course.rounds for step in held.steps if isinstance(step, Evict | Shrink)]
        steps = [step for step in steps if step.means != "move"]
        left = [str(step.job) for step in steps]
        yield from (f"{name} waits" for name in self.runs if not at_rest[name].placement)
        yield from (f"{name} runs" for name in self.waits if at_rest[name].placement)
        yield from (f"{name} leaves" for name in self.stays if name in left)
        if self.once and len(set(left)) < len(left):
            yield f"leaves twice: {', '.join(name for name, count in Counter(left).items() if count > 1)}"
        if self.shrinks_only and any(isinstance(step, Evict) for step in steps):
            yield f"leaves as a whole: {', '.join(str(step.job) for step in steps if isinstance(step, Evict))}"
        queues = {str(job.name): str(job.spec.queue) for job in course.world.snapshot.jobs}
        evictions = Counter(queues[str(owner_of(step.job))] for step in steps)
        if self.evictions is not None and evictions != Counter(self.evictions):
            yield f"leave: {dict(evictions) or 'nobody'}, where {self.evictions or 'nobody'} should"
        given = Counter[str]()
        for step in steps:
            given[queues[str(owner_of(step.job))]] += int(step.gpus)
        if self.gives is not None and {name: milli / 1000 for name, milli in given.items()} != self.gives:
            yield f"give up GPUs: { {name: milli / 1000 for name, milli in given.items()} }, where {self.gives} should"
        if self.also is not None:
            yield self.also(course)


@dataclass(frozen=True)
class Case:
    """One world of a fault."""

    about: str
    world: World
    outcome: Outcome

    def problem(self, decide: Decide = production) -> str:
        """What is decided wrongly; "" where it is as it should be."""
        return self.outcome.problem(course_of(self.world, decide))


@dataclass(frozen=True)
class Fault:
    """Something that was seen to go wrong, by its number."""

    number: int
    title: str
    cases: Callable[[], Iterator[Case]]


def _case(about: str, text: str, **outcome: object) -> Case:
    return Case(about, world_of(text), Outcome(**outcome))  # type: ignore[arg-type]


def _each(prefix: str, queue: str, count: int, nodes: Sequence[str], ages: Sequence[int], rest: str = "") -> str:
    """So many running jobs of one GPU, on these nodes in turn."""
    return "\n".join(
        f"run {prefix}{n + 1} {queue} 1@{nodes[n]} for {ages[n % len(ages)]}.{n:03}m {rest}" for n in range(count)
    )


def fair_share_starves() -> Iterator[Case]:
    """1: who is at its share is passed over, and does not end the search."""
    queues = "queue a 0\nqueue b 0\nqueue c 0\n"
    for scale, (young, old) in ((1, (60, 600)), (1, (3, 4)), (2, (60, 600)), (2, (600, 60))):
        a, b, c = 2 * scale, 3 * scale, 4 * scale
        nodes = ["n1"] * (9 * scale)
        text = (
            f"nodes n1={9 * scale}\n{queues}{_each('a', 'a', a, nodes, [300])}\n{_each('b', 'b', b, nodes, [young])}\n"
            f"{_each('c', 'c', c, nodes, [old])}\n"
        ) + "\n".join(f"wait w{n} a 1 for {5 + n}m" for n in range(scale))
        runs = tuple(f"w{n}" for n in range(scale))
        yield _case(f"{9 * scale} GPUs, b {young}m, c {old}m", text, runs=runs, evictions={"c": scale})
    for gpus, gangs in ((9, "3"), (9, "1"), (18, "6")):
        share, size = gpus // 3, int(gangs)
        lines = [f"nodes n1={gpus}", queues, f"wait w a {share} for 9m"]
        lines += [f"run b{n} b {size}@n1 for {20 + n}m" for n in range(share // size)]
        lines += [f"run c{n} c {size}@n1 for {300 + n}m" for n in range(2 * share // size)]
        yield _case(
            f"a task of {share} of {gpus}, gangs of {size}", "\n".join(lines), runs=("w",), gives={"c": float(share)}
        )


def takes_too_many() -> Iterator[Case]:
    """2: no more evictions than it takes."""
    queues = "queue a 0\nqueue b 0\nqueue c 0\n"
    for waits in ("wait w1 c 2 for 9m", "wait w1 c 2x1 for 9m", "wait w1 c 1 for 9m\nwait w2 c 1 for 8m"):
        for a, b in ((300, 30), (30, 300)):
            nodes = ["n1"] * 6
            text = f"nodes n1=6\n{queues}{_each('a', 'a', 3, nodes, [a])}\n{_each('b', 'b', 3, nodes, [b])}\n{waits}"
            yield _case(f"6 GPUs, {waits!r}, a {a}m, b {b}m", text, runs=("w1",), evictions={"a": 1, "b": 1})
    for seed in range(4):
        yield _many_takers(seed)


def _many_takers(seed: int) -> Case:
    """64 GPUs, three equal queues hold them all, and a fourth wants its quarter."""
    random = Random(seed)
    first = random.randint(18, 26)
    second = random.randint(18, 42 - first + 4)
    held, ages = {"a": first, "b": second, "c": 64 - first - second}, random.sample(range(10, 2000), 64)
    lines = ["nodes " + " ".join(f"n{n}=8" for n in range(8)), *(f"queue {name} 0" for name in "abcd")]
    owners = [name for name, count in held.items() for _ in range(count)]
    random.shuffle(owners)
    lines += [f"run {name}{n:02} {name} 1@n{n // 8} for {ages[n]}m" for n, name in enumerate(owners)]
    lines += [f"wait d{n:02} d 1 for {9 - n / 2}m" for n in range(16)]
    needed = {name: count - 16 for name, count in held.items() if count > 16}
    runs = tuple(f"d{n:02}" for n in range(16))
    return _case(f"64 GPUs, {held}", "\n".join(lines), runs=runs, evictions=needed)


def names_decide() -> Iterator[Case]:
    """3: the odd GPU stays with the queue that holds it, whatever its name is."""
    for guaranteed in ("0", "-"):
        for gpus in (3, 5, 7):
            for holder, other in (("a", "b"), ("b", "a")):
                more, fewer = gpus // 2 + 1, gpus // 2
                nodes = ["n1"] * gpus
                text = (
                    f"nodes n1={gpus}\nqueue a {guaranteed}\nqueue b {guaranteed}\n"
                    f"{_each('h', holder, more, nodes, [600])}\n{_each('o', other, fewer, nodes, [50])}\n"
                    f"wait w {other} 1 for 40m"
                )
                about = f"{gpus} GPUs, guaranteed {guaranteed}, {holder} holds {more}"
                yield _case(about, text, waits=("w",), evictions={})
    text = "nodes n1=4\nqueue a 0 weight=2\nqueue b 0\nqueue c 0\nrun a1 a 2@n1 for 90m\nrun b1 b 1@n1 for 80m\n"
    text += "run c1 c 1@n1 for 70m\nwait w a 1 for 60m"
    yield _case("weights 2, 1, 1 without a rest", text, waits=("w",), evictions={})


def fractions_are_spared() -> Iterator[Case]:
    """4: parts of GPUs leave like other work where that is less harm."""
    for share, age, value in ((0.5, 1, "low"), (0.25, 2, "low"), (0.5, 1, "high")):
        text = (
            f"nodes n1=2\nrules shared\nclass low -1\nclass high 1\nqueue a 1\nqueue b 0\n"
            f"run whole b 1@n1 for 600m {value}\nrun part b {share}@n1/1 for {age}m low\nwait w a 1 for 5m low"
        )
        yield _case(f"{share} of a GPU for {age}m, or one for 600m", text, runs=("w",), stays=("whole",))
    text = (
        "nodes n1=3\nrules shared\nqueue a 1\nqueue b 0\nrun whole b 1@n1 for 600m\nrun p1 b 0.5@n1/1 for 1m\n"
        "run p2 b 0.5@n1/1 for 2m\nrun more b 1@n1 for 700m\nwait w a 1 for 5m"
    )
    yield _case("two halves of a minute, or one for 600m", text, runs=("w",), stays=("whole", "more"))


def own_queue_pays_beside_free_gpus() -> Iterator[Case]:
    """5: not preemptible work inside its guarantee starts on what is free, and nobody of its queue leaves."""
    for nodes, guaranteed, gang, value in ((8, 8, "4x1", 0), (8, 8, "4x1", 5), (2, 8, "4x1", 0), (4, 4, "4", -1)):
        lines = ["nodes " + " ".join(f"n{n}=8" for n in range(nodes)), f"class fixed {value} fixed"]
        lines += [f"queue q {guaranteed}", "queue r 0"]
        lines += [f"run p{n} q 1@n0 for {100 + n}m" for n in range(guaranteed)]
        about = f"{8 * nodes} GPUs, {guaranteed} guaranteed and held, a gang of {gang} of value {value}"
        text = "\n".join([*lines, f"wait w q {gang} for 9m fixed"])
        yield _case(about, text, runs=("w",), evictions={})


def host_resources_void_guarantees() -> Iterator[Case]:
    """6: work without GPUs that holds the CPUs of nodes with GPUs yields to who is guaranteed them."""
    for nodes, gang in ((4, "4x8"), (1, "8"), (2, "2x8")):
        names = [f"n{n}" for n in range(nodes)]
        text = (
            "nodes " + " ".join(f"{name}=8" for name in names) + f"\nqueue a {8 * nodes}\nqueue b 0\n"
            f"run hog b {nodes}x0@{','.join(names)} for 90m cpu=90\nwait w a {gang} for 30m cpu=64"
        )
        yield _case(f"{nodes} nodes, a gang of {gang}", text, runs=("w",), evictions={"b": 1})
    text = (
        "nodes n1=1\nclass high 1\nclass low -1\nqueue a 1\nrun one a 0@n1 for 90m low cpu=90\n"
        "wait w a 0 for 30m high cpu=90"
    )
    yield _case("a higher value in its own queue", text, runs=("w",), evictions={"a": 1})


def straddling_before_inside() -> Iterator[Case]:
    """7: a job inside its guarantee starts before an older one that is inside only in part."""
    for half in (2, 4, 3):
        text = (
            f"nodes n1={2 * half}\nqueue a {half}\nqueue b {half}\nrun a0 a {half - 1}@n1 for 90m\n"
            f"run b0 b {half - 1}@n1 for 80m\nwait old a 2 for 50m\nwait young b 1 for 5m"
        )
        yield _case(f"{2 * half} GPUs", text, runs=("young",), waits=("old",), evictions={})


def growth_takes_nothing_back() -> Iterator[Case]:
    """8: an elastic job grows inside its guarantee into what others borrowed."""
    for most, lent in ((8, "7x1"), (8, "1"), (4, "1"), (6, "5-5x1")):
        lines = [f"nodes n1={most}", f"queue a {most}", "queue b 0", f"run e a 1-{most}x1@n1 for 90m"]
        if lent == "1":
            lines += [f"run b{n} b 1@n1 for {50 + n}m" for n in range(most - 1)]
        else:
            lines += [f"run b0 b {most - 1}x1@{','.join(['n1'] * (most - 1))} for 50m"]

        def full(course: Course, most: int = most) -> str:
            held = next(len(job.placement) for job in course.end.jobs if job.name == "e")
            return "" if held == most else f"e stays at {held} of {most}"

        yield _case(f"{most} guaranteed, {most - 1} lent as {lent}", "\n".join(lines), also=full)


def whole_gangs_leave() -> Iterator[Case]:
    """9: gangs shrink where that is enough."""
    head = "nodes n1=4 n2=4\nqueue a 4\nqueue b 0\n"
    yield _case(
        "one gang of 2-4 for a job of 2",
        "nodes n1=4\nqueue a 2\nqueue b 0\nrun e b 2-4x1@n1,n1,n1,n1 for 90m\nwait w a 2 for 9m",
        runs=("w",),
        shrinks_only=True,
        gives={"b": 2.0},
    )
    yield _case(
        "two gangs give one each, or a young one leaves",
        head
        + "run e1 b 2-3x1@n1,n1,n1 for 300m\nrun e2 b 2-3x1@n2,n2,n2 for 200m\nrun young b 1@n1 for 2m\n"
        + "run k b 1@n2 for 400m\nwait w a 2x1 for 9m",
        runs=("w",),
        shrinks_only=True,
    )
    yield _case(
        "in its own queue",
        "nodes n1=6\nclass high 1\nqueue a 6\nqueue b 0\nrun e a 2-4x1@n1,n1,n1,n1 for 90m\nrun r a 2@n1 for 1m\n"
        "wait w a 2 for 9m high",
        runs=("w",),
        shrinks_only=True,
        gives={"a": 2.0},
    )
    yield _case(
        "one gang across nodes, and a task of 2",
        "nodes n1=3 n2=3\nqueue a 2\nqueue b 0\nrun e b 2-6x1@n1,n1,n2,n2,n2,n1 for 90m\nwait w a 2 for 9m",
        runs=("w",),
        shrinks_only=True,
        gives={"b": 2.0},
    )
    yield _case(
        "tasks beyond minima of one value make way for a job of the same",
        "nodes n1=4\nqueue a 4\nqueue b 0\nrun e a 1-4x1@n1,n1,n1,n1 for 90m\nwait w a 2 for 9m",
        runs=("w",),
        shrinks_only=True,
        gives={"a": 2.0},
    )


def own_entitled_work_pays() -> Iterator[Case]:
    """10: who is inside takes what straddles elsewhere before lower work of its own queue; moving and evicting combine."""
    for scale in (1, 2):
        text = (
            f"nodes n1={12 * scale}\nclass low -1\nclass mid 0\nclass high 1\nqueue a {6 * scale}\nqueue b {6 * scale}\n"
            f"run a-low a {3 * scale}@n1 for 90m low\nrun b-mid b {3 * scale}@n1 for 80m mid\n"
            f"run b-high b {4 * scale}@n1 for 70m high\nwait w a {3 * scale} for 30m high"
        )
        yield _case(f"{12 * scale} GPUs", text, runs=("w", "a-low"), stays=("a-low",), evictions={"b": 1})
    text = (
        "nodes n1=4 n2=4\nqueue a 4\nqueue b 0\nqueue c 4\nrun lent b 2@n1 for 90m\nrun mine c 2@n1 for 80m\n"
        "run also c 2@n2 for 70m\nwait w a 4 for 30m"
    )
    yield _case("one moves and one leaves", text, runs=("w", "mine", "also"), evictions={"b": 1})


def pool_named_by_a_geometry() -> Iterator[Case]:
    """11: a pool that a MigGeometry names keeps guarantees of whole GPUs."""
    for gpus, size in ((4, "4"), (8, "8"), (8, "2x4")):
        text = f"nodes n1={gpus}\nqueue a {gpus}\nqueue b 0\n" + _each("b", "b", gpus, ["n1"] * gpus, [60])
        world = world_of(f"{text}\nwait w a {size} for 9m")
        for mode, layouts in (("free", ()), ("bounded", ("7x 1g.10gb",))):
            geometry = MigGeometry("parts", POOL, mode, "H100-80GB", layouts, MigChanges(8))  # type: ignore[arg-type]
            named = policy_of(
                world.policy.queues, world.policy.priority_classes, world.policy.scheduling, (), (geometry,)
            )
            outcome = Outcome(runs=("w",), evictions={"b": gpus})
            yield Case(f"{gpus} GPUs, {size}, {mode}", World(world.snapshot, named), outcome)


def fractions_spread() -> Iterator[Case]:
    """12: fractions fill divided GPUs, and move, so that whole GPUs stay whole."""
    for count, share, nodes in ((8, 0.25, "n1=8"), (8, 0.25, "n1=4 n2=4"), (6, 0.5, "n1=8")):
        lines = [f"nodes {nodes}", "rules shared", "queue a -"]
        lines += [f"wait f{n} a {share} for {30 - n}m" for n in range(count)]

        def packed(course: Course, most: int = int(count * share)) -> str:
            gpus = {device for job in course.end.jobs for task in job.placement for device in task.devices}
            return "" if len(gpus) <= most else f"{len(gpus)} GPUs are divided, {most} would do"

        yield _case(f"{count} of {share} on {nodes}", "\n".join(lines), also=packed)
    text = "nodes n1=4\nrules shared\nqueue a 4\n" + "\n".join(
        f"run f{n} a 0.25@n1/{n} for {60 + n}m" for n in range(4)
    )
    yield _case("four quarters on four GPUs, and a job of 3", f"{text}\nwait w a 3 for 9m", runs=("w",), evictions={})


def why_hides_protection() -> Iterator[Case]:
    """13: a job that waits for the end of a protection says so."""
    for shield in ("minRuntime=20m", "coolDown=20m", "perDay=1"):
        world = world_of(
            f"nodes n1=2\nclass safe 0 {shield}\nqueue a 2\nqueue b 0\nrun b1 b 2@n1 for 10m safe\nwait w a 2 for 2m"
        )
        jobs = tuple(
            msgspec.structs.replace(job, evicted_at=(job.started_at,)) if job.started_at is not None else job
            for job in world.snapshot.jobs
        )
        snapshot = msgspec.structs.replace(world.snapshot, jobs=jobs)
        outcome = Outcome(runs=("w",), also=_says_protected)
        yield Case(shield, World(snapshot, world.policy), outcome)


def _says_protected(course: Course) -> str:
    plan = production(*course.world)
    verdict = next((known for known in plan.verdicts if isinstance(known, Waits) and known.job == "w"), None)
    if verdict is None:
        return "w does not wait"
    tags = [type(reason).__struct_config__.tag for reason in verdict.reasons]
    return "" if "protected" in tags else f"w waits because of {', '.join(map(str, tags))}"


def starts_in_vain() -> Iterator[Case]:
    """14: nothing starts that another may take back in the next round."""
    for gpus, gang, part in ((6, "3x2", "0.25"), (6, "3x2", "0.5"), (8, "4x2", "1"), (4, "4x1", "0.25")):
        text = f"nodes n1={gpus}\nrules shared\nqueue a -\nqueue b 1\nwait gang b {gang} for 90m\nwait small a {part} for 5m"
        yield _case(f"{gpus} GPUs, a gang of {gang} and {part}", text, runs=("small",), waits=("gang",), evictions={})


def small_job_starves_the_gang() -> Iterator[Case]:
    """15: of one queue's entitled jobs the larger set is served, though the smaller fits at once."""
    for gang, old, young in (("3", 90, 5), ("3x1", 90, 5), ("3", 90, 80)):
        text = (
            f"nodes n1=3\nqueue a 3\nqueue b 0\nrun lent b 1@n1 for 200m\nwait big a {gang} for {old}m\n"
            f"wait small a 1 for {young}m"
        )
        yield _case(f"{gang} for {old}m, 1 for {young}m", text, runs=("big",), waits=("small",), evictions={"b": 1})
    text = (
        "nodes n1=6\nqueue a 6\nqueue b 0\nrun l1 b 1@n1 for 200m\nrun l2 b 1@n1 for 100m\nwait big a 6 for 90m\n"
        "wait small a 2 for 5m\nwait tiny a 1 for 4m"
    )
    yield _case("6, 2 and 1", text, runs=("big",), waits=("small", "tiny"), evictions={"b": 2})


def leaves_for_nothing() -> Iterator[Case]:
    """16: of lower work of the queue that alone leaves which the job needs."""
    for guaranteed in (4, 6):
        text = (
            f"nodes n1=6 n2=4 n3=2\nclass high 1\nqueue a {guaranteed}\nqueue b 6\nrun b0 b 6@n1 for 300m\n"
            "run three a 3@n2 for 90m\nrun one a 1@n3 for 80m\nwait w a 4 for 30m high"
        )
        yield _case(f"a task of 4, {guaranteed} guaranteed", text, runs=("w", "one"), stays=("one",))
    text = (
        "nodes n1=6 n2=4 n3=2\nclass high 1\nqueue a 4\nqueue b 8\nrun b0 b 6@n1 for 300m\nrun three a 3@n2 for 90m\n"
        "run one a 1@n3 for 80m\nwait w a 4x1 for 30m high"
    )
    yield _case("four tasks of 1", text, runs=("w",), gives={"a": 3.0})


def chains() -> Iterator[Case]:
    """17: who holds no more than its share does not pay, and one eviction starts no chain."""
    head = "nodes n1=8\nqueue x 0\nqueue y 0\nqueue y1 in y 0\nqueue y2 in y 0\n"
    nodes = ["n1"] * 8
    for x, y in ((300, 30), (30, 300)):
        held = f"{head}{_each('x', 'x', 6, nodes, [x])}\n{_each('y', 'y1', 2, nodes, [y])}\n"
        yield _case(f"x {x}m, y1 {y}m", f"{held}wait w y2 1 for 9m", runs=("w",), evictions={"x": 1})
        more = f"{held}wait w y2 1 for 9m\nwait v y1 1 for 5m"
        yield _case(f"the same, and y1 wants a third, x {x}m", more, runs=("w", "v"), evictions={"x": 2})


FAULTS = (
    Fault(1, "Fair-share reclaim starves", fair_share_starves),
    Fault(2, "It takes too many", takes_too_many),
    Fault(3, "Names decide", names_decide),
    Fault(4, "Fractions are spared", fractions_are_spared),
    Fault(5, "Not preemptible work evicts its own queue beside free GPUs", own_queue_pays_beside_free_gpus),
    Fault(6, "Host resources void guarantees", host_resources_void_guarantees),
    Fault(7, "Straddling before inside", straddling_before_inside),
    Fault(8, "Growth inside a guarantee takes nothing back", growth_takes_nothing_back),
    Fault(9, "Whole gangs leave where shrinking suffices", whole_gangs_leave),
    Fault(10, "One's own entitled work pays", own_entitled_work_pays),
    Fault(11, "A pool that a MigGeometry names keeps no guarantees", pool_named_by_a_geometry),
    Fault(12, "Fractions spread", fractions_spread),
    Fault(13, "Why hides protection", why_hides_protection),
    Fault(14, "Starts in vain", starts_in_vain),
    Fault(15, "One's own small young job starves the gang", small_job_starves_the_gang),
    Fault(16, "Leaves for nothing", leaves_for_nothing),
    Fault(17, "Chains, and queues below their share pay", chains),
)


def wrong(case: Case, decide: Decide = production, names: Sequence[int] = (1, 2)) -> str:
    """What is decided wrongly, by the names it has or by others."""
    problem = case.problem(decide)
    if problem:
        return problem
    for seed in names:
        world, new = renamed(case.world, seed)
        found = course_of(world, decide)
        problem = _by_new_names(case.outcome, new).problem(found)
        if problem:
            return f"by other names: {problem}"
    return ""


def _by_new_names(outcome: Outcome, new: dict[str, str]) -> Outcome:
    """The same, told by other names; what is said of the plan itself is left out."""

    def of(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new[name] for name in names)

    evictions = None if outcome.evictions is None else {new[name]: n for name, n in outcome.evictions.items()}
    gives = None if outcome.gives is None else {new[name]: n for name, n in outcome.gives.items()}
    return Outcome(
        of(outcome.runs), of(outcome.waits), evictions, gives, of(outcome.stays), outcome.shrinks_only, outcome.once
    )


def fault_lines(decide: Decide = production) -> Iterator[str]:
    """Which of them are decided wrongly now."""
    for fault in FAULTS:
        cases = [(case, wrong(case, decide)) for case in fault.cases()]
        bad = [(case, problem) for case, problem in cases if problem]
        yield f"{fault.number:2} {fault.title}: {len(cases) - len(bad)} of {len(cases)} as they should be"
        yield from (f"     {case.about}: {problem}" for case, problem in bad)
