"""What queues are due is counted twice: a fault in how the solver counts it is a plan that the checker refuses.

Each fault is put into the solver alone, in a world where it decides otherwise for it. Without the fault the plan is in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pytest

from solver.checker.check import violations
from solver.model.cluster import GpuType
from solver.model.parts import owner_of
from solver.model.workload import QueueName
from solver.policy.tree import QueueTree, QuotaLine
from solver.quota import entitlement, fairshare, guarantees
from solver.quota.entitlement import QuotaHeadroom
from solver.quota.fairshare import Claimant
from solver.quota.held_use import HeldByLines
from solver.round.solve import solve
from tests.solver.laws.worlds import World, world_of

Patch = pytest.MonkeyPatch
guaranteed_by_the_book = guarantees.guarantees
used_by_the_book = entitlement.use_of_lines
divided_by_the_book = fairshare.divide


class Seeded(NamedTuple):
    """A fault, the world in which it decides otherwise, and the rule that is broken."""

    about: str
    fault: Callable[[Patch], None]
    world: str
    rule: str


def guaranteed(changed: Callable[[dict[QuotaLine, int]], None]) -> Callable[[Patch], None]:
    """Guarantees that somebody spoils."""

    def spoiled(tree: QueueTree, capacity: Mapping[GpuType, int]) -> dict[QuotaLine, int]:
        found = guaranteed_by_the_book(tree, capacity)
        changed(found)
        return found

    return lambda patch: patch.setattr("solver.quota.entitlement.guarantees", spoiled)


def doubled(name: str) -> Callable[[dict[QuotaLine, int]], None]:
    def change(found: dict[QuotaLine, int]) -> None:
        for line in found:
            found[line] *= 2 if line.queue == name else 1

    return change


def nothing(name: str) -> Callable[[dict[QuotaLine, int]], None]:
    def change(found: dict[QuotaLine, int]) -> None:
        for line in found:
            found[line] *= 0 if line.queue == name else 1

    return change


def one_more(name: str) -> Callable[[dict[QuotaLine, int]], None]:
    def change(found: dict[QuotaLine, int]) -> None:
        for line in found:
            found[line] += 1000 if line.queue == name else 0

    return change


def used(keeps: Callable[[QueueTree, QuotaLine], bool]) -> Callable[[Patch], None]:
    """Use of which some lines are forgotten."""

    def forgetful(tree: QueueTree, held: HeldByLines) -> dict[QuotaLine, int]:
        return {line: milli for line, milli in used_by_the_book(tree, held).items() if keeps(tree, line)}

    return lambda patch: patch.setattr("solver.quota.entitlement.use_of_lines", forgetful)


def fair(changed: Callable[[str, Claimant], Claimant]) -> Callable[[Patch], None]:
    """Fair shares of siblings that claim something else than they may."""

    def spoiled(milli: int, claimants: Mapping[QuotaLine, Claimant]) -> dict[QuotaLine, int]:
        return divided_by_the_book(milli, {line: changed(line.queue, known) for line, known in claimants.items()})

    return lambda patch: patch.setattr("solver.quota.fairshare.divide", spoiled)


def always(name: str, answer: object) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(name, lambda *_, **__: answer)


def inside_at_leaves(patch: Patch) -> None:
    """What lies inside a guarantee counts for the queue that holds it, and not for those above."""
    book = entitlement.inside_lines

    def forgetful(
        tree: QueueTree, limits: Mapping[QuotaLine, int], used: Mapping[QuotaLine, int]
    ) -> Mapping[QuotaLine, int]:
        return {line: milli for line, milli in book(tree, limits, used).items() if line.queue not in tree.children}

    patch.setattr("solver.quota.entitlement.inside_lines", forgetful)


def everything_is_borrowed(patch: Patch) -> None:
    book = __import__("solver.preemption.eviction_rules", fromlist=["borrowing_of"]).borrowing_of
    patch.setattr("solver.preemption.eviction_rules.borrowing_of", lambda *told: np.zeros_like(book(*told)))


def anybody_gives(patch: Patch) -> None:
    """Queues at or below their shares give as well."""
    patch.setattr("solver.preemption.eviction.only_above_shares", lambda *_: True)
    patch.setattr("solver.preemption.givers.Givers._at_share", lambda *_: iter(()))


def nobody_compares(patch: Patch) -> None:
    """Whether the least served have more is not asked."""

    def spare(headroom: QuotaHeadroom, queue: QueueName, _: GpuType) -> Iterator[tuple[QueueName, int]]:
        yield from ((name, 10**9) for name in headroom.shares.tree.by_name if name != queue)

    patch.setattr("solver.preemption.eviction.fairer", lambda *_: True)
    patch.setattr("solver.preemption.givers.to_spare", spare)


def more_than_needed(patch: Patch) -> None:
    """All that may leave leaves, and nobody is spared."""
    book = __import__("solver.preemption.fewest", fromlist=["Fewest"]).Fewest

    def find(this: object, request: object, side: object) -> object:
        places: Iterable[int] = side.places.tolist()  # type: ignore[attr-defined]
        evictable = this.attempts.evictable  # type: ignore[attr-defined]
        return this.attempts.attempt(request, [evictable.victim(place) for place in places])  # type: ignore[attr-defined]

    patch.setattr(book, "find", find)
    patch.setattr("solver.preemption.eviction.is_gpu_for_gpu", lambda *_: True)
    patch.setattr("solver.preemption.spared_victims.SparedVictims.spare_all", lambda *_: None)


def all_that_a_gang_can_do_without(patch: Patch) -> None:
    """Of gangs all leaves that they can do without, and none of it is spared."""

    def find(this: object, request: object, side: object) -> object:
        victims = map(this.attempts.evictable.victim, side.places.tolist())  # type: ignore[attr-defined]
        return this.attempts.attempt(request, [known for known in victims if owner_of(known.name) != known.name])  # type: ignore[attr-defined]

    patch.setattr("solver.preemption.fewest.Fewest.find", find)
    patch.setattr("solver.preemption.fewest.Fewest.with_one_unit", lambda _, found, __: found)
    patch.setattr("solver.preemption.spared_victims.SparedVictims.spare_all", lambda *_: None)


LARGE = "nodes " + " ".join(f"m{number}=1" for number in range(8))
"""In a cluster of more nodes no round looks ahead to the next."""

HELD = "; ".join(f"run z{number} z 1@m{number} for 99m" for number in range(8))

LENT = """nodes n1=4
queue a 1 reclaim=guaranteed
queue b 0 reclaim=guaranteed
run b1 b 1@n1 for 50m; run b2 b 1@n1 for 40m; run b3 b 1@n1 for 30m; run b4 b 1@n1 for 20m
wait w a 2 for 9m"""
NESTED = """nodes n1=4
queue x 2 reclaim=guaranteed
queue x1 in x 2
queue x2 in x 2
queue b 0
run y x2 2@n1 for 90m; run b1 b 1@n1 for 50m; run b2 b 1@n1 for 40m
wait w x1 2 for 9m"""
SHARES = """nodes n1=10
queue a 0; queue b 0; queue c 0
run a1 a 3@n1 for 90m; run c1 c 3@n1 for 53m
run b1 b 1@n1 for 50m; run b2 b 1@n1 for 51m; run b3 b 1@n1 for 52m; run b4 b 1@n1 for 49m
wait w a 1 for 9m"""

FAULTS = (
    Seeded("a guarantee is doubled", guaranteed(doubled("a")), LENT, "S12"),
    Seeded(
        "a guarantee that is left out is rounded up",
        guaranteed(one_more("a")),
        "nodes n1=3; queue a - reclaim=guaranteed; queue b 0; queue c -; run b1 b 1@n1 for 50m; run b2 b 1@n1 for 40m;"
        "run b3 b 1@n1 for 30m; wait w a 2 for 9m",
        "S12",
    ),
    Seeded(
        "the guarantee of those that run is forgotten",
        guaranteed(nothing("b")),
        "nodes n1=2; queue a 2; queue b 2; run b1 b 2@n1 for 50m; wait w a 2 for 9m",
        "S4",
    ),
    Seeded("what lies inside is forgotten at the parent", inside_at_leaves, NESTED, "S12"),
    Seeded(
        "use is forgotten at the parent, which has a max",
        used(lambda tree, line: line.queue not in tree.children),
        "nodes n1=4; queue x 0 max=2; queue x1 in x 0; queue x2 in x 0; run y x2 2@n1 for 50m; wait w x1 1 for 9m",
        "S3",
    ),
    Seeded(
        "what a queue holds is forgotten",
        used(lambda _, line: line.queue != "a"),
        "nodes n1=4; queue a 0 max=2; queue b 0; run a1 a 2@n1 for 50m; wait w a 1 for 9m",
        "S3",
    ),
    Seeded(
        "what a queue holds is forgotten, of its guarantee",
        used(lambda _, line: line.queue != "a"),
        "nodes n1=4; queue a 2 reclaim=guaranteed; queue b 0; run a1 a 2@n1 for 50m; run b1 b 2@n1 for 40m; wait w a 2 for 9m",
        "S12",
    ),
    Seeded(
        "a fair share is what is wanted",
        fair(lambda name, known: known._replace(guaranteed=known.demand) if name == "a" else known),
        SHARES,
        "S12",
    ),
    Seeded(
        "weights count for nothing",
        fair(lambda _, known: known._replace(weight=1)),
        "nodes n1=6; queue a 0; queue b 0 weight=2; run a1 a 2@n1 for 9m; run b1 b 1@n1 for 50m; run b2 b 1@n1 for 51m;"
        "run b3 b 1@n1 for 52m; run b4 b 1@n1 for 53m; wait w a 1 for 9m",
        "S12",
    ),
    Seeded(
        "the odd GPU does not stay with the queue that holds it",
        fair(lambda _, known: known._replace(used=0)),
        f"{LARGE} n1=7; queue z 8; queue a 0; queue b 0; {HELD}; run a1 a 3@n1 for 90m; run b1 b 1@n1 for 50m;"
        "run b2 b 1@n1 for 51m; run b3 b 1@n1 for 52m; run b4 b 1@n1 for 53m; wait w a 1 for 9m",
        "S12",
    ),
    Seeded(
        "queues at their share give",
        anybody_gives,
        "nodes n1=2 n2=3; rules moves=0; queue b 0; queue x 0; queue x1 in x 0; queue x2 in x 0; run j3 b 1@n2 for 400m;"
        "run j1 x2 1@n1 for 312m; run j2 x2 1@n2 for 19m; wait w x1 2 for 180m",
        "S12",
    ),
    Seeded(
        "the least served need not have more",
        nobody_compares,
        "nodes n1=4 n2=2; queue a 0; queue b 0; run b1 b 4@n1 for 50m; run b2 b 1@n2 for 50m; run a1 a 1@n2 for 80m;"
        "wait w a 2 for 9m",
        "S12",
    ),
    Seeded(
        "its own work's leaving gives a queue a right to others'",
        lambda patch: patch.setattr("solver.preemption.eviction.Preemptor._has_right", lambda *_: True),
        "nodes n1=3 n2=2 n3=1; class high 1; queue a 4 reclaim=guaranteed; queue b 0; run big a 2x2@n1,n2 for 50m;"
        "run a3 a 1@n3 for 40m; run b1 b 1@n1 for 30m; wait w a 3 for 9m high",
        "S12",
    ),
    Seeded(
        "everything is borrowed",
        everything_is_borrowed,
        f"{LARGE} n1=2; queue z 8; queue a 2; queue b 2; {HELD}; run b1 b 2@n1 for 50m; wait w a 2 for 9m",
        "S4",
    ),
    Seeded(
        "no max holds",
        lambda patch: patch.setattr("solver.quota.entitlement.Shares.left_under_max", lambda *_: None),
        "nodes n1=4; queue a 0 max=2; run a1 a 2@n1 for 50m; wait w a 1 for 9m",
        "S3",
    ),
    Seeded(
        "what is not preemptible borrows",
        always("solver.queueing.demand.may_borrow", True),
        "nodes n1=4; class firm 0 fixed; queue a 2; queue b 0; run a1 a 1@n1 for 50m firm; wait w a 2 for 9m firm",
        "S14",
    ),
    Seeded(
        "more leaves than is gained",
        more_than_needed,
        f"{LARGE} n1=4; queue z 8; queue a 1; queue b 0; {HELD}; run b1 b 1@n1 for 50m; run b2 b 1@n1 for 40m;"
        "run b3 b 1@n1 for 30m; run b4 b 1@n1 for 20m; wait w a 1 for 9m",
        "S13",
    ),
    Seeded(
        "more of a gang leaves than is needed",
        all_that_a_gang_can_do_without,
        f"{LARGE} n1=4; queue z 8; queue a 1; queue b 0; {HELD}; run b1 b 1-4x1@n1,n1,n1,n1 for 50m; wait w a 1 for 9m",
        "S13",
    ),
)


def rules(world: World) -> Counter[str]:
    """The rules that a plan of the search breaks."""
    plan = solve(world.snapshot, world.policy, None)
    return Counter(found.rule for found in violations(world.snapshot, world.policy, plan))


@pytest.mark.parametrize("seeded", FAULTS, ids=lambda seeded: seeded.about)
def test_a_fault_of_the_solver_is_found(seeded: Seeded, monkeypatch: Patch) -> None:
    world = world_of(seeded.world)
    assert not rules(world)
    seeded.fault(monkeypatch)
    assert seeded.rule in rules(world)
