"""By trying everything: which sets of running jobs may leave or move so that a waiting job finds its place.

A set counts as lawful only where every reading of the rules lets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, combinations, product
from typing import NamedTuple

from tests.solver.laws.book import GPU, Book, Part, Worker

Free = tuple[tuple[int, ...], ...]
"""What is free of each GPU of each node, the largest first."""

MOVES_TRIED = 2
"""Jobs that a way moves at most: worlds are tiny."""


class Way(NamedTuple):
    """How a job could be served: what leaves for it, and which jobs move elsewhere."""

    leaving: frozenset[Part]
    moving: frozenset[str] = frozenset()

    def __str__(self) -> str:
        whole = sorted({part.job for part in self.leaving if not part.number})
        shrinks = Counter(part.job for part in self.leaving if part.job not in whole)
        said = [f"{name} leaves" for name in whole]
        said += [f"{name} gives up {count} task{'s' * (count > 1)}" for name, count in sorted(shrinks.items())]
        said += [f"{name} moves" for name in sorted(self.moving)]
        return ", ".join(said) or "nobody leaves"


# Places.


def left_of(book: Book, leaving: Iterable[Part] = (), absent: Iterable[str] = ()) -> dict[str, int]:
    """What is left of each GPU beside all that is held, once these parts have left and these jobs hold nothing."""
    gone, away = {(part.job, spot.number) for part in leaving for spot in part.spots}, set(absent)
    left = {gpu: GPU for gpus in book.nodes.values() for gpu in gpus}
    for job in book.jobs.values():
        for spot in job.spots if job.name not in away else ():
            for gpu in spot.gpus if (job.name, spot.number) not in gone else ():
                if gpu in left:
                    left[gpu] -= spot.share
    return left


def free_of(book: Book, leaving: Iterable[Part] = (), absent: Iterable[str] = ()) -> Free:
    """What is free of each GPU of each node, once these parts have left and these jobs hold nothing."""
    left = left_of(book, leaving, absent)
    return tuple(tuple(sorted((left[gpu] for gpu in gpus), reverse=True)) for gpus in book.nodes.values())


def tasks_of(jobs: Iterable[Worker]) -> tuple[int, ...]:
    """What these jobs need to start, task by task, the largest first."""
    return tuple(sorted(chain.from_iterable([job.unit] * job.least for job in jobs), reverse=True))


@lru_cache(maxsize=200_000)
def fits(free: Free, tasks: tuple[int, ...]) -> bool:
    """Whether all of these tasks find places together."""
    if not tasks:
        return True
    if sum(tasks) > sum(map(sum, free)):
        return False
    return any(fits(left, tasks[1:]) for left in _placed(free, tasks[0]))


def _placed(free: Free, unit: int) -> Iterator[Free]:
    """Every way to place one task, alike nodes and GPUs told apart no more than once."""
    tried = set()
    for number, node in enumerate(free):
        if node in tried:
            continue
        tried.add(node)
        for after in _on_node(node, unit):
            yield (*free[:number], after, *free[number + 1 :])


def _on_node(node: tuple[int, ...], unit: int) -> Iterator[tuple[int, ...]]:
    if unit >= GPU:
        count = unit // GPU
        if node.count(GPU) >= count:
            yield tuple(sorted((*node[count:], *[0] * count), reverse=True))
        return
    for share in set(node):
        if share >= unit:
            rest = list(node)
            rest.remove(share)
            yield tuple(sorted((*rest, share - unit), reverse=True))


# Rights.


def may_take(book: Book, taker: Worker, leaving: frozenset[Part], moving: frozenset[str] = frozenset()) -> bool:
    """Whether the rules surely let these leave for a job that is inside its guarantees, or inside what a queue above shares."""
    own = [part for part in leaving if book.jobs[part.job].queue == taker.queue]
    others = [part for part in leaving if book.jobs[part.job].queue != taker.queue]
    if not (book.may_start(taker) and book.has_room(taker, taker.need, leaving) and _are_whole(book, leaving)):
        return False
    if not all(_yields(book, part, taker) for part in others) or not set(own) <= set(book.lower(taker)):
        return False
    path = book.path(taker.queue)
    if others or moving:
        levels = {name for part in others for name in book.apart(taker.queue, book.jobs[part.job].queue)}
        in_common = not own and book.is_in_common(taker, others)
        if not book.is_inside(taker, path if moving else levels, others) and not in_common:
            return False
    if own and not (book.is_inside(taker, path) or book.is_inside_before_lower(taker)):
        return False
    return (
        not _is_protected(book, taker, own, others)
        and _is_gpu_for_gpu(leaving, taker.need)
        and _gains_enough(book, taker, own, leaving, moving)
    )


def _yields(book: Book, part: Part, taker: Worker) -> bool:
    job = book.jobs[part.job]
    standing = book.standing(part, taker.queue)
    if standing == "straddles":
        return job.preemptible
    return standing == "borrowed" and (job.preemptible or job.may_borrow)


def _are_whole(book: Book, leaving: frozenset[Part]) -> bool:
    """What a job can't do without leaves only with all that it has."""
    whole = {part.job for part in leaving if not part.number}
    return all(part in leaving for name in whole for part in book.jobs[name].parts)


def _is_protected(book: Book, taker: Worker, own: Sequence[Part], others: Sequence[Part]) -> bool:
    lifted = book.is_overdue(taker)
    if book.is_early(taker) and (own or (others and not lifted)):
        return True
    return any(book.is_protected(book.jobs[part.job]) for part in own) or (
        not lifted and any(book.is_protected(book.jobs[part.job]) for part in others)
    )


def _is_gpu_for_gpu(leaving: Iterable[Part], need: int) -> bool:
    """No more leaves than is gained; but one job, be that all of it or some of its tasks, may exceed it, if the rest alone is too
    little.
    """
    of_jobs = Counter[str]()
    for part in leaving:
        of_jobs[part.job] += part.milli
    return of_jobs.total() <= need or of_jobs.total() - max(of_jobs.values()) < need


def _gains_enough(
    book: Book, taker: Worker, own: Sequence[Part], leaving: Iterable[Part], moving: Iterable[str]
) -> bool:
    given_up = sum(part.milli for part in leaving) + sum(book.jobs[name].milli for name in moving)
    lifted = book.is_overdue(taker) and not own and not moving
    return lifted or taker.need >= book.min_gain * given_up


def may_take_for_share(book: Book, taker: Worker, leaving: frozenset[Part]) -> bool:
    """Whether the rules surely let these leave for a job that is inside its fair share: of queues that keep theirs."""
    jobs = [book.jobs[part.job] for part in leaving]
    sure = (
        book.reclaims[taker.queue]
        and not (leaving and book.is_early(taker))
        and (taker.preemptible or taker.may_borrow)
        and _are_whole(book, leaving)
    )
    if not sure or not book.has_room(taker, taker.need, leaving) or sum(p.milli for p in leaving) > taker.need:
        return False
    if any(job.queue == taker.queue or not job.preemptible or book.is_protected(job) for job in jobs):
        return False
    if any(job.queue in book.not_for_shares for job in jobs):
        return False
    if any(book.standing(part, taker.queue) != "borrowed" for part in leaving):
        return False
    gone = book.added_up((book.jobs[part.job].queue, part.milli) for part in leaving)
    giving = {name for job in jobs for name in book.apart(job.queue, taker.queue)}
    return all(
        all(book.used[name] - gone[name] >= fair[name] for name in giving)
        and all(book.used[name] - gone[name] + taker.need <= fair[name] for name in book.path(taker.queue))
        for fair in book.divisions
    )


# Sets.


def sets_of(parts: Iterable[Part], book: Book) -> Iterator[frozenset[Part]]:
    """Every set in which a job stays, gives up some of these tasks, or leaves as a whole; small sets first."""
    per_job = dict[str, list[Part]]()
    for part in parts:
        per_job.setdefault(part.job, []).append(part)
    choices = [list(_leaves(known, book.jobs[name].parts)) for name, known in sorted(per_job.items())]
    sets = (frozenset(chain.from_iterable(chosen)) for chosen in product(*choices))
    yield from sorted(sets, key=lambda found: (len({part.job for part in found}), sum(p.milli for p in found)))


def _leaves(parts: Sequence[Part], every: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    surplus = [part for part in parts if part.number]
    for count in range(len(surplus) + 1):
        yield from combinations(surplus, count)
    if len(parts) == len(every):
        yield tuple(parts)


def candidates(book: Book, taker: Worker) -> list[Part]:
    """What may have to leave for a job at all: of its own queue by value, of others if it is not inside their guarantees."""
    lower = set(book.lower(taker))
    others = (part for job in book.running if job.queue != taker.queue for part in job.parts)
    return sorted({*lower, *(part for part in others if _yields(book, part, taker))})


def ways(book: Book, taker: Worker, beside: Sequence[Worker] = ()) -> Iterator[Way]:
    """Every lawful way to serve a job that is inside its guarantees, with those beside it who need a place too."""
    tasks = tasks_of([taker, *beside])
    for leaving in sets_of(candidates(book, taker), book):
        if may_take(book, taker, leaving) and fits(free_of(book, leaving), tasks):
            yield Way(leaving)
    if book.moves:
        yield from _ways_with_moves(book, taker, tasks)


def share_ways(book: Book, taker: Worker) -> Iterator[Way]:
    """Every lawful way to serve a job that is inside its fair share alone."""
    others = (part for job in book.running if job.queue != taker.queue for part in job.parts)
    loans = [part for part in others if book.standing(part, taker.queue) == "borrowed"]
    for leaving in sets_of(loans, book):
        if may_take_for_share(book, taker, leaving) and fits(free_of(book, leaving), tasks_of([taker])):
            yield Way(leaving)


def growth_ways(book: Book, job: Worker) -> Iterator[tuple[int, Way]]:
    """By how many tasks a running job could grow inside its guarantees if others gave back what they borrowed of it."""
    for count in range(1, job.most - len(job.spots) + 1):
        more = count * job.unit
        others = (part for known in book.running if known.queue != job.queue for part in known.parts)
        loans = [part for part in others if book.standing(part, job.queue) == "borrowed"]
        for leaving in sets_of(loans, book):
            gone = book.added_up((book.jobs[part.job].queue, part.milli) for part in leaving)
            inside = all(book.used[n] - gone[n] + more <= book.guaranteed[n] for n in book.path(job.queue))
            free_to = all(book.jobs[part.job].preemptible for part in leaving) and _are_whole(book, leaving)
            gpu_for_gpu = 0 < sum(part.milli for part in leaving) <= more
            lawful = inside and free_to and gpu_for_gpu and book.has_room(job, more, leaving)
            if lawful and fits(free_of(book, leaving), (job.unit,) * count):
                yield count, Way(leaving)


# Moves.


def _ways_with_moves(book: Book, taker: Worker, tasks: tuple[int, ...]) -> Iterator[Way]:
    """The same with one or two jobs that go on elsewhere, on what is free now."""
    able = [job for job in book.running if can_move(book, job)]
    for count in range(1, min(MOVES_TRIED, book.moves, len(able)) + 1):
        for movers in combinations(able, count):
            moving = frozenset(job.name for job in movers)
            stay = [part for part in candidates(book, taker) if part.job not in moving]
            for leaving in sets_of(stay, book):
                if may_take(book, taker, leaving, moving) and find_places(book, movers, leaving, tasks):
                    yield Way(leaving, moving)


def can_move(book: Book, job: Worker) -> bool:
    over = any((limit := book.most[name]) is not None and book.used[name] > limit for name in book.path(job.queue))
    return job.preemptible and not over and not book.is_protected(job)


def find_places(book: Book, movers: Sequence[Worker], leaving: frozenset[Part], tasks: tuple[int, ...]) -> bool:
    """Whether all tasks fit once these have left and the movers are on some of what is free now, no further apart than before."""
    now, after = left_of(book), left_of(book, leaving, [job.name for job in movers])
    both = tuple(tuple(sorted((now[gpu], after[gpu]) for gpu in gpus)) for gpus in book.nodes.values())
    return any(fits(_later(there), tasks) for there in _arrivals(movers, both))


NowAndLater = tuple[tuple[tuple[int, int], ...], ...]
"""What is free of each GPU of each node, now and later."""


def _later(both: NowAndLater) -> Free:
    return tuple(tuple(sorted((later for _, later in node), reverse=True)) for node in both)


def _arrivals(movers: Sequence[Worker], both: NowAndLater) -> set[NowAndLater]:
    """What may be free beside movers, each on what is free now."""
    found = {both}
    for mover in movers:
        apart = len({spot.node for spot in mover.spots})
        beside = {(there, frozenset[int]()) for there in found}
        for _ in mover.spots:
            beside = {
                (after, on | {number})
                for there, on in beside
                for number, node in enumerate(there)
                if len(on | {number}) <= apart
                for after in _with_one(there, number, node, mover.unit)
            }
        found = {there for there, _ in beside}
    return found


def _with_one(both: NowAndLater, number: int, node: tuple[tuple[int, int], ...], unit: int) -> Iterator[NowAndLater]:
    """Every way to have one task more on a node."""
    count, each = max(1, unit // GPU), min(unit, GPU)
    for gpu in {gpu for gpu in node if gpu[0] >= each and node.count((GPU, GPU)) >= count * (unit >= GPU)}:
        rest = list(node)
        for _ in range(count):
            rest.remove(gpu)
        with_it = tuple(sorted((*rest, *[(gpu[0] - each, gpu[1] - each)] * count)))
        yield (*both[:number], with_it, *both[number + 1 :])


# The best set of entitled work.


def served_together(book: Book, takers: Sequence[Worker]) -> bool:
    """Whether jobs that are inside their guarantees all together can be, if others leave as they must."""
    need = book.added_up((job.queue, job.need) for job in takers)
    if any(book.used[name] + need[name] > book.guaranteed[name] for name in need):
        return False
    limits = ((book.most[name], book.used[name] + need[name]) for name in need)
    if any(limit is not None and after > limit for limit, after in limits) or not all(map(book.may_start, takers)):
        return False
    tasks = tasks_of(takers)
    if fits(free_of(book), tasks):
        return True
    every = sorted({part for job in takers for part in candidates(book, job)})
    return any(
        fits(free_of(book, leaving), tasks) and _can_be_shared_out(book, takers, leaving)
        for leaving in sets_of(every, book)
    )


def _can_be_shared_out(book: Book, takers: Sequence[Worker], leaving: frozenset[Part]) -> bool:
    """Whether everybody who leaves may leave for one of the takers."""
    if not _are_whole(book, leaving):
        return False
    names = sorted({part.job for part in leaving})
    for chosen in product(takers, repeat=len(names)):
        shares = dict(zip(names, chosen, strict=True))
        if all(_may_take_beside(book, job, takers, leaving, shares) for job in takers):
            return True
    return False


def _may_take_beside(
    book: Book, job: Worker, takers: Sequence[Worker], leaving: frozenset[Part], shares: Mapping[str, Worker]
) -> bool:
    mine = frozenset(part for part in leaving if shares[part.job] is job)
    if not mine:
        return True
    if sum(part.milli for part in mine) > job.need and is_served_gpu_for_gpu(book, job):
        return False
    beside = book.with_changes([one.name for one in takers if one is not job], leaving - mine)
    return may_take(beside, beside.jobs[job.name], mine)


def is_served_gpu_for_gpu(book: Book, job: Worker) -> bool:
    """Whether a job could be served without more leaving than it gets."""
    return any(sum(part.milli for part in way.leaving) <= job.need for way in ways(book, job))


def best_entitled(book: Book) -> tuple[Counter[int], tuple[Worker, ...]]:
    """The most GPUs inside guarantees that can be served, by the rank of the value in the job's queue, and by which jobs."""
    rank = ranks_of(book)
    able = [job for job in book.waiting if job.preemptible or job.may_borrow or book.may_start(job)]
    able = [job for job in able if book.is_inside(job, book.path(job.queue)) and book.admissible(job)]
    # Who has to wait before others leave has what is free, in the order of the round.
    able = [job for job in able if not book.is_early(job) or book.is_overdue(job)]
    best, found = Counter[int](), tuple[Worker, ...]()
    for count in range(1, len(able) + 1):
        for takers in combinations(able, count):
            worth = Counter[int]()
            for job in takers:
                worth[rank[job.name]] += job.need
            if _is_more(worth, best) and served_together(book, takers):
                best, found = worth, takers
    return best, found


def ranks_of(book: Book) -> dict[str, int]:
    """How many larger values wait in a job's queue."""
    return {
        job.name: len({one.value for one in book.waiting if one.queue == job.queue and one.value > job.value})
        for job in book.waiting
    }


def _is_more(one: Counter[int], other: Counter[int]) -> bool:
    ranks = sorted({*one, *other})
    return [one[rank] for rank in ranks] > [other[rank] for rank in ranks]
