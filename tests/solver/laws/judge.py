"""Judges what `solve` makes of a tiny world, round by round until it rests: by the rules of `book`, and by trying everything.

It accuses only where every reading of the rules agrees: what they leave open is no finding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

from solver.milp.highs import optimise
from solver.model.snapshot import Snapshot
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Shrink
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.solver.laws.best import (
    Way,
    best_entitled,
    fits,
    free_of,
    growth_ways,
    is_served_gpu_for_gpu,
    may_take,
    may_take_for_share,
    ranks_of,
    sets_of,
    share_ways,
    tasks_of,
    ways,
)
from tests.solver.laws.book import GPU, Book, Part, Worker, improves, spot_of
from tests.solver.laws.harm import Harm
from tests.solver.laws.loop import Course, Decide, Round, course_of
from tests.solver.laws.renaming import renamed
from tests.solver.laws.worlds import World

KINDS = {
    "entitled-waits": "At rest a job inside its guarantees waits, though others may lawfully leave or move so that it starts.",
    "shared-waits": "At rest a job inside what a queue above shares waits, though strangers may lawfully leave or move.",
    "entitled-fits-free": "At rest a job inside its guarantees waits beside free GPUs that it fits on.",
    "fewer-entitled": "The first round serves fewer GPUs inside guarantees than could be served.",
    "share-waits": "At rest a job inside its fair share waits, though queues above theirs could spare what it needs.",
    "growth-waits": "At rest an elastic job stays small inside its guarantees beside what others borrowed.",
    "idle-beside": "At rest a job waits, or stays small, beside idle GPUs that it may have.",
    "needless": "Somebody leaves who could have stayed with everything served.",
    "not-least-harm": "Others could have left in its place, with less harm by every reading of the order.",
    "unlawful": "Somebody leaves for a job that has no right to its GPUs.",
    "below-share-pays": "A queue at or below its fair share loses GPUs to a claim that goes no further than a fair share.",
    "equal-claim": "Somebody loses GPUs to a claim that is no better than its own.",
    "repeated": "A job is evicted twice though nothing changed from outside, or the world does not come to rest.",
    "in-vain": "A job starts or grows, and is evicted or shrinks again though nothing changed from outside.",
    "names-decide": "With other names for queues, jobs and nodes the verdicts, the GPUs or the harm are not the same.",
}


class Finding(NamedTuple):
    """Something that no reading of the rules allows. `number`: the round, 0 at rest."""

    kind: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.kind} ({f'round {self.number}' if self.number else 'at rest'}): {self.text}"


def production(snapshot: Snapshot, policy: Policy) -> Plan:
    """A round as in production, with the integer program."""
    return solve(snapshot, policy, optimise)


def greedy(snapshot: Snapshot, policy: Policy) -> Plan:
    """A round without the program."""
    return solve(snapshot, policy, None)


def judged(world: World, decide: Decide = production, *, rename: int | None = 1) -> tuple[Course, list[Finding]]:
    """The rounds of a world, and everything that is wrong with them; `rename`: by which permutation names are tried."""
    course = course_of(world, decide)
    found = [finding for number, held in enumerate(course.rounds, 1) for finding in _in_round(held, number)]
    if course.rounds:
        found += _fewer_entitled(course.rounds[0])
    found += [*_in_growth(course), *_in_history(course), *_back_again(course)]
    if course.rests:
        found += _at_rest(course.book)
    if rename is not None:
        found += _by_names(course, decide, rename)
    return course, found


# At rest.


def _at_rest(book: Book) -> Iterator[Finding]:
    for job in book.waiting:
        if not book.admissible(job):
            continue
        entitled = book.is_entitled(job)
        if _fits_free(book, job):
            if entitled:
                yield Finding("entitled-fits-free", 0, f"{job.name} is inside the guarantees of {job.queue} and waits")
            elif not _could_be_taken_back(book, job):
                yield Finding("idle-beside", 0, f"{job.name} waits and would fit on what is free")
        elif entitled and (way := next(ways(book, job), None)):
            text = f"{job.name} is inside the guarantees of {job.queue} and waits; it could start if {way}"
            yield Finding("entitled-waits", 0, text)
        elif not entitled and book.is_in_common(job) and (way := next(ways(book, job), None)):
            yield Finding(
                "shared-waits", 0, f"{job.name} is inside what is shared with {job.queue}; could start if {way}"
            )
        elif not entitled and (way := next(share_ways(book, job), None)):
            yield Finding("share-waits", 0, f"{job.name} is inside the fair share of {job.queue}; could start if {way}")
    for job in book.running:
        yield from _small(book, job)


def _fits_free(book: Book, job: Worker) -> bool:
    return book.may_start(job) and book.has_room(job, job.need) and fits(free_of(book), tasks_of([job]))


def _could_be_taken_back(book: Book, job: Worker) -> bool:
    """Whether somebody else waits who may claim the same for its fair share once it runs: then it may be right to wait."""
    return any(
        book.used[other.queue] + other.need <= max(fair[other.queue] for fair in book.divisions)
        for other in book.waiting
        if other.name != job.name
    )


def _small(book: Book, job: Worker) -> Iterator[Finding]:
    """A running job that could be larger."""
    if len(job.spots) >= job.most or not job.preemptible:
        return
    if book.has_room(job, job.unit) and fits(free_of(book), (job.unit,)):
        claimed = any(_could_be_taken_back(book, job) for _ in book.waiting[:1])
        if not claimed:
            yield Finding(
                "idle-beside", 0, f"{job.name} stays at {len(job.spots)} tasks of {job.most} beside free GPUs"
            )
    elif found := next(growth_ways(book, job), None):
        count, way = found
        text = f"{job.name} could have {count} more tasks inside the guarantees of {job.queue} if {way}"
        yield Finding("growth-waits", 0, text)


# One round.


def _in_round(held: Round, number: int) -> Iterator[Finding]:
    takers = sorted({str(step.beneficiary) for step in held.evictions} | set(held.moves.values()))
    for name in takers:
        if not held.book.jobs[name].spots:
            yield from _claims(held, held.book.jobs[name], number)
            yield from _harm(held, held.book.jobs[name], number)
    if held.evictions and not held.moves:
        yield from _needless(held, number)


def moved_in(held: Round, movers: set[str]) -> Book:
    """The book with these jobs where they move to, and with what running ones grow by inside their guarantees."""
    jobs, book = dict(held.book.jobs), held.book
    for step in held.steps:
        if isinstance(step, Grow) and _grows_inside(held, step):
            name = str(step.job)
            jobs[name] = replace(jobs[name], spots=(*jobs[name].spots, *map(spot_of, step.tasks)))
        if isinstance(step, Nominate) and str(step.job) in movers:
            name = str(step.job)
            # Where it goes on is promised to it: it does not leave as well.
            jobs[name] = replace(jobs[name], spots=tuple(map(spot_of, step.tasks)), promised=True)
    return replace(book, jobs=jobs) if jobs != book.jobs else book


def _grows_inside(held: Round, step: Grow) -> bool:
    book, more = held.book, sum(int(task.gpus) for task in step.tasks)
    return all(book.used[name] + more <= book.guaranteed[name] for name in book.path(book.jobs[str(step.job)].queue))


def _tasks_of_growth(held: Round) -> tuple[int, ...]:
    """The sizes of tasks that are promised to running jobs, for which others leave."""
    names = sorted({str(step.beneficiary) for step in held.evictions})
    growing = [held.book.jobs[name] for name in names if held.book.jobs[name].spots]
    gpus = ((job.unit, sum(part.milli for part in held.leaving_for(job.name))) for job in growing)
    return tuple(unit for unit, milli in gpus for _ in range(milli // unit))


def _claims(held: Round, taker: Worker, number: int) -> Iterator[Finding]:
    """Whether each that leaves for a job may have to, and whether a fair share takes from those above theirs alone."""
    book, mine = held.book, held.leaving_for(taker.name)
    own = {part for part in mine if book.jobs[part.job].queue == taker.queue}
    for part in sorted(own):
        problem = _own_problem(book, book.jobs[part.job], part, taker)
        if problem:
            yield Finding(problem[0], number, f"{part.job} leaves for {taker.name}: {problem[1]}")
    others = sorted(mine - own)
    gone = sum(part.milli for part in held.leaving if book.jobs[part.job].queue == taker.queue)
    inside = book.used[taker.queue] - gone + taker.need <= book.guaranteed[taker.queue]
    inside |= bool(book.common_levels(taker, others)) and book.might_be_in_common(taker, held.leaving)
    for part in others:
        job, standing = book.jobs[part.job], book.standing(part, taker.queue)
        if not job.preemptible and not job.may_borrow:
            yield Finding("unlawful", number, f"{job.name} leaves for {taker.name} and is not preemptible")
        elif standing == "inside" or (standing == "straddles" and not inside):
            where = "lies inside a guarantee" if standing == "inside" else "crosses a guarantee's line"
            text = f"{job.name} of {job.queue} {where} towards {taker.queue}, and leaves for {taker.name}"
            yield Finding("unlawful", number, text)
    if others and not inside and not all(book.yields_by_value(part, taker) for part in others):
        yield from _fair_claims(held, taker, others, number)


def _own_problem(book: Book, job: Worker, part: Part, taker: Worker) -> tuple[str, str] | None:
    if not job.preemptible:
        return "unlawful", "it is not preemptible"
    if job.value > taker.value:
        return "unlawful", f"its value is higher, {job.value} against {taker.value}"
    if book.within.get(job.queue) == "never":
        return "unlawful", f"in queue {job.queue} none leaves for another"
    if job.value == taker.value and not part.number and not book.is_newer(job, taker):
        return "equal-claim", f"both are of value {job.value} in queue {job.queue}"
    return None


def _fair_claims(held: Round, taker: Worker, others: list[Part], number: int) -> Iterator[Finding]:
    """A job beyond its guarantee takes from other queues: they must be above their shares, and the least served gain."""
    book = held.book
    beside = [name for name in held.starts if name != taker.name]
    after = book.with_changes(beside, held.leaving - set(others))
    if not book.reclaims[taker.queue]:
        yield Finding(
            "unlawful", number, f"{others[0].job} leaves for {taker.name}, whose queue takes back guarantees only"
        )
    for part in others:
        if book.jobs[part.job].queue in book.not_for_shares:
            yield Finding(
                "unlawful", number, f"{part.job} leaves for {taker.name}, and its queue gives for guarantees only"
            )
        levels = book.apart(book.jobs[part.job].queue, taker.queue)
        if all(any(one.used[n] <= fair[n] for n in levels) for fair in book.divisions for one in (book, after)):
            queue = book.jobs[part.job].queue
            text = f"{part.job} of {queue} leaves for {taker.name} of {taker.queue}, which is beyond its guarantee"
            yield Finding("below-share-pays", number, text)
            break
    gone = book.added_up((book.jobs[part.job].queue, part.milli) for part in others)
    ancestors = {book.ancestor(book.jobs[part.job].queue, taker.queue) for part in others}

    def is_fairer(one: Book, fair: Mapping[str, int], ancestor: str | None) -> bool:
        names, path = book.below(ancestor), book.path(taker.queue)
        later = [(one.used[n] - gone[n] + (taker.need if n in path else 0), fair[n]) for n in names]
        return improves([(one.used[n], fair[n]) for n in names], later)

    if not any(all(is_fairer(one, f, a) for a in ancestors) for f in book.divisions for one in (book, after)):
        names = ", ".join(sorted({part.job for part in others}))
        yield Finding(
            "equal-claim", number, f"{names} leaves for {taker.name}, and the least served have no more by it"
        )


def _harm(held: Round, taker: Worker, number: int) -> Iterator[Finding]:
    """Whether another set could have left for one job, all else being as it is, with less harm."""
    actual = Way(held.leaving_for(taker.name), frozenset(n for n, to in held.moves.items() if to == taker.name))
    entitled = _might_claim(held.book, taker, actual.leaving)
    beside = [held.book.jobs[name] for name in held.starts if name != taker.name]
    if entitled:
        # Who leaves and moves for guarantees is settled before anything else is handed out.
        beside = [job for job in beside if _might_claim(held.book, job, held.leaving)]
    names = [job.name for job in beside]
    others = frozenset[Part]().union(*map(held.leaving_for, names))
    moved = moved_in(held, {name for name, to in held.moves.items() if to in names})
    book = moved.with_changes(names, others)
    harm = Harm(book)
    if entitled:
        found = ways(book, taker, beside)
    else:
        tasks = tasks_of([taker, *beside])
        found = (way for way in share_ways(book, taker) if fits(free_of(book, way.leaving), tasks))
    best: Way | None = None
    for way in found:
        shared = {taker.name: way}
        if harm.is_less(shared, {taker.name: actual}) and (best is None or harm.is_less(shared, {taker.name: best})):
            best = way
    if best is not None:
        less = best.leaving <= actual.leaving and best.moving <= actual.moving
        text = f"for {taker.name} {actual}; it would do if {best}"
        yield Finding("needless" if less else "not-least-harm", number, text)


def _might_claim(book: Book, job: Worker, leaving: frozenset[Part]) -> bool:
    """Whether some reading has it inside its guarantees, or inside what a queue above shares."""
    return book.might_be_entitled(job, leaving) or book.might_be_in_common(job, leaving)


def _needless(held: Round, number: int) -> Iterator[Finding]:
    """Whether fewer of those who leave would do for all jobs that are served."""
    book = moved_in(held, set())
    takers = [book.jobs[str(step.beneficiary)] for step in held.evictions]
    takers = [job for job in {job.name: job for job in takers}.values() if not job.spots]
    for_growth = held.leaving - frozenset[Part]().union(*(held.leaving_for(job.name) for job in takers))
    if not all(_might_claim(book, job, held.leaving) for job in takers):
        served = [book.jobs[name] for name in held.starts]
    else:
        served = [book.jobs[n] for n in held.starts if _might_claim(book, book.jobs[n], held.leaving)]
    tasks = (*tasks_of(served), *_tasks_of_growth(held))
    for fewer in sets_of(held.leaving - for_growth, book):
        stay = fewer | for_growth
        if stay == held.leaving or not fits(free_of(book, stay), tasks):
            continue
        if _is_below_limits(book, served, stay) and all(_may_still(held, job, served, stay) for job in takers):
            spared = ", ".join(sorted({part.job for part in held.leaving - stay}))
            yield Finding(
                "needless", number, f"{spared} could have stayed, in whole or in part, with everything served"
            )
            return


def _is_below_limits(book: Book, served: list[Worker], leaving: frozenset[Part]) -> bool:
    after = book.with_changes([job.name for job in served], leaving)
    return all(limit is None or after.used[name] <= limit for name, limit in book.most.items())


def _may_still(held: Round, taker: Worker, served: list[Worker], leaving: frozenset[Part]) -> bool:
    """Whether a job may still have what leaves for it, if that is fewer than before."""
    mine = leaving & held.leaving_for(taker.name)
    if not mine:
        return True
    beside = held.book.with_changes([job.name for job in served if job is not taker], leaving - mine)
    return may_take(beside, taker, mine) or may_take_for_share(beside, taker, mine)


def _fewer_entitled(held: Round) -> Iterator[Finding]:
    book, rank = held.book, ranks_of(held.book)
    best, takers = best_entitled(book)
    got = Counter[int]()
    for name in held.starts:
        if book.might_be_entitled(book.jobs[name], held.leaving):
            got[rank[name]] += book.jobs[name].need
    for place in sorted({*best, *got}):
        # Of two sets of about as many GPUs the order of jobs may decide; and no job starts that a higher one of its queue evicts.
        if best[place] > 1.07 * got[place] and not any(_stands_back(held, job) for job in takers):
            names = ", ".join(job.name for job in takers)
            text = f"{best[place] / GPU:g} GPUs of rank {place} could be served, by {names}; {got[place] / GPU:g} are"
            yield Finding("fewer-entitled", 1, text)
        if best[place] != got[place]:
            return


def _stands_back(held: Round, job: Worker) -> bool:
    """Whether it waits beside a job of its queue that is served and could evict it."""
    others = [held.book.jobs[name] for name in held.starts if held.book.jobs[name].queue == job.queue]
    return job.name not in held.starts and any(
        one.value > job.value or (one.value == job.value and held.book.is_newer(job, one)) for one in others
    )


# Several rounds.


def _in_growth(course: Course) -> Iterator[Finding]:
    """For running jobs that grow, others give up what they borrowed, and no more than running jobs grow by in later rounds.

    One that leaves can do so for jobs of several queues, and which task of a queue grows is decided each round.
    """
    spare = 0
    for number, held in reversed(list(enumerate(course.rounds, 1))):
        names = sorted({str(step.beneficiary) for step in held.evictions})
        left = 0
        for name in (name for name in names if held.book.jobs[name].spots):
            queue, mine = held.book.jobs[name].queue, held.leaving_for(name)
            left += sum(part.milli for part in mine)
            for part in sorted(mine):
                if held.book.jobs[part.job].queue == queue or held.book.standing(part, queue) != "borrowed":
                    yield Finding(
                        "unlawful", number, f"{part.job} leaves for the growth of {name}, and borrows nothing"
                    )
        if left > spare:
            text = f"{left / GPU:g} GPUs leave for jobs to grow, and in later rounds they grow by {spare / GPU:g}"
            yield Finding("needless", number, text)
        grown = (task.gpus for step in held.steps if isinstance(step, Grow) for task in step.tasks)
        spare = max(0, spare - left) + sum(map(int, grown))


def _in_history(course: Course) -> Iterator[Finding]:
    """What is done and undone between two changes from outside."""
    history = _History()
    for number, held in enumerate(course.rounds, 1):
        if held.epoch != history.epoch:
            history = _History(held.epoch)
        for step in held.steps:
            if isinstance(step, Evict | Shrink | Grow):
                yield from history.resized(step, number)
        moved = set(course.rounds[number - 2].moves) if number > 1 else set[str]()
        begun = {str(step.job) for step in held.steps if isinstance(step, Bind)}
        history.began |= dict.fromkeys(begun - moved, number)
    if not course.rests:
        yield Finding("repeated", len(course.rounds), "the world does not come to rest")


@dataclass
class _History:
    """What happened since the last change from outside."""

    epoch: int = 0
    evicted: set[str] = field(default_factory=set)
    began: dict[str, int] = field(default_factory=dict)
    grew: set[str] = field(default_factory=set)

    def resized(self, step: Evict | Shrink | Grow, number: int) -> Iterator[Finding]:
        """What is wrong with a job's leaving or shrinking now."""
        name = str(step.job)
        if isinstance(step, Grow):
            self.grew.add(name)
        elif isinstance(step, Shrink):
            if name in self.grew:
                yield Finding("in-vain", number, f"{name} grew, and shrinks again for {step.beneficiary}")
        elif step.means != "move":
            if name in self.evicted:
                yield Finding("repeated", number, f"{name} is evicted again, for {step.beneficiary}")
            elif name in self.began:
                text = f"{name} started in round {self.began[name]} and is evicted for {step.beneficiary}"
                yield Finding("in-vain", number, text)
            self.evicted.add(name)


def _back_again(course: Course) -> Iterator[Finding]:
    """Whether somebody left, and runs again at rest, who could have stayed where it was."""
    rounds = course.rounds
    if not course.rests or not rounds or rounds[-1].epoch or any(_resizes(held) for held in rounds):
        return
    before, after = rounds[0].book, course.book
    left = {str(step.job) for held in rounds for step in held.evictions}
    ran = {job.name for job in before.running}
    runs = {job.name for job in after.running}
    if not left & ran & runs or any(held.moves for held in rounds):
        return
    gone = frozenset(part for name in ran - runs for part in before.jobs[name].parts)
    new = [before.jobs[name] for name in sorted(runs - ran)]
    if _could_all_be_served(before, new, gone):
        spared = ", ".join(sorted(left & ran & runs))
        yield Finding("needless", len(rounds), f"{spared} left and runs again at rest: it could have stayed")


def _resizes(held: Round) -> bool:
    larger = any(len(step.tasks) > held.book.jobs[str(step.job)].least for step in held.starts.values())
    return larger or any(isinstance(step, Shrink | Grow) for step in held.steps)


def _could_all_be_served(book: Book, new: list[Worker], gone: frozenset[Part]) -> bool:
    if not fits(free_of(book, gone), tasks_of(new)) or not _is_below_limits(book, new, gone):
        return False
    names = sorted({part.job for part in gone})
    if not names:
        return all(map(book.may_start, new))
    for chosen in product(new, repeat=len(names)):
        shares = dict(zip(names, chosen, strict=True))
        if all(_may_have(book, job, new, gone, frozenset(p for p in gone if shares[p.job] is job)) for job in new):
            return True
    return False


def _may_have(book: Book, job: Worker, new: list[Worker], gone: frozenset[Part], mine: frozenset[Part]) -> bool:
    if not mine:
        return book.may_start(job)
    if sum(part.milli for part in mine) > job.need and is_served_gpu_for_gpu(book, job):
        return False
    beside = book.with_changes([one.name for one in new if one is not job], gone - mine)
    return may_take(beside, job, mine) or may_take_for_share(beside, job, mine)


# Names.


def _by_names(course: Course, decide: Decide, seed: int) -> Iterator[Finding]:
    world, names = renamed(course.world, seed)
    other = course_of(world, decide)
    back = {new: old for old, new in names.items()}
    mine, theirs = [_told(held, {}) for held in course.rounds], [_told(held, back) for held in other.rounds]
    for number, (one, two) in enumerate(zip(mine, theirs, strict=False), 1):
        for name in sorted(one.keys() | two.keys()):
            if one.get(name) != two.get(name):
                text = f"{name} {one.get(name, 'nothing')}, and by other names {two.get(name, 'nothing')}"
                yield Finding("names-decide", number, text)
                return
    if len(mine) != len(theirs):
        yield Finding("names-decide", min(len(mine), len(theirs)) + 1, "a round is held, and by other names none")


def _told(held: Round, back: Mapping[str, str]) -> dict[str, str]:
    """What a round says of each job, without saying where."""
    said = dict[str, list[str]](defaultdict(list))
    for verdict in held.plan.verdicts:
        name = str(verdict.job)
        said.setdefault(back.get(name, name), []).append(type(verdict).__name__.lower())
    for step in held.steps:
        if isinstance(step, Bind | Nominate | Grow):
            text = f"{type(step).__name__.lower()} {sum(task.gpus for task in step.tasks) / GPU:g}"
        elif isinstance(step, Evict | Shrink):
            to = str(step.beneficiary)
            text = f"{type(step).__name__.lower()} {step.gpus} for {back.get(to, to)}, {step.lost_gpu_s:.0f} lost"
        else:
            text = type(step).__name__.lower()
        name = str(getattr(step, "job", ""))
        said.setdefault(back.get(name, name), []).append(text)
    return {name: ", ".join(sorted(texts)) for name, texts in said.items()}
