"""The judge itself: each kind of finding on a world where it must be found, and on one where it must not."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from solver.model.snapshot import Snapshot
from solver.plan.plan import Plan
from solver.policy.policy import Policy
from tests.solver.laws.best import best_entitled, fits, share_ways, ways
from tests.solver.laws.book import Book, improves
from tests.solver.laws.generator import drawn
from tests.solver.laws.judge import KINDS, judged
from tests.solver.laws.loop import course_of
from tests.solver.laws.renaming import renamed
from tests.solver.laws.script import plan_of, scripted
from tests.solver.laws.worlds import text_of, world_of


class Shown(NamedTuple):
    """A world and rounds by hand."""

    about: str
    world: str
    rounds: tuple[str, ...] = ()


LENT = "nodes n1=4; queue a 2; queue b 0; run b1 b 2@n1 for 90m; run b2 b 2@n1 for 60m; wait a1 a 2 for 9m"
EQUAL = "nodes n1=4; queue a 0; queue b 0; run b1 b 2@n1 for 90m; run a1 a 2@n1 for 60m; wait a2 a 1 for 9m"

FIRES = {
    "entitled-waits": (
        Shown("others borrowed what it needs", LENT),
        Shown(
            "one could move",
            "nodes n1=2 n2=2; queue a 2; queue b 2; run b1 b 1@n1 for 90m; run b2 b 1@n2 for 60m; wait a1 a 2 for 9m",
        ),
        Shown(
            "a job of higher value, and its queue's guarantee is used up by lower ones",
            "nodes n1=2; class high 1; queue a 2; run a1 a 2@n1 for 60m; wait a2 a 2 for 9m high",
        ),
        Shown(
            "one moves and one leaves",
            "nodes n1=4 n2=4; queue a 4; queue b 0; queue c 4; run b1 b 2@n1 for 90m; run c1 c 2@n1 for 80m; "
            "run c2 c 2@n2 for 70m; wait a1 a 4 for 30m",
        ),
    ),
    "entitled-fits-free": (
        Shown("GPUs are free", "nodes n1=4; queue a 2; queue b 0; run b1 b 2@n1 for 90m; wait a1 a 2 for 9m"),
        Shown(
            "not preemptible, beside preemptible work of its queue",
            "nodes n1=4; class fixed 0 fixed; queue a 2; queue b 2; run a1 a 2@n1 for 90m; wait a2 a 2 for 9m fixed",
        ),
    ),
    "fewer-entitled": (
        Shown(
            "a small young job keeps a gang waiting",
            "nodes n1=3; queue a 3; queue b 0; run b1 b 1@n1 for 90m; wait a1 a 3 for 30m; wait a2 a 1 for 9m",
            ("start a2 n1",),
        ),
        Shown(
            "of 6, 2 and 1 the smaller ones",
            "nodes n1=6; queue a 6; queue b 0; run b1 b 1@n1 for 90m; run b2 b 1@n1 for 80m; wait a1 a 6 for 30m; "
            "wait a2 a 2 for 9m; wait a3 a 1 for 8m",
            ("start a2 n1; start a3 n1",),
        ),
    ),
    "shared-waits": (
        Shown(
            "strangers hold what two queues have in common",
            "nodes n1=2; queue x shared 2; queue x1 in x 0; queue x2 in x 0; queue b 0; run b1 b 2@n1 for 90m; "
            "wait a1 x1 2 for 9m",
        ),
    ),
    "share-waits": (
        Shown(
            "a queue at its share has the cheaper victims",
            "nodes n1=9; queue a 0; queue b 0; queue c 0; wait a1 a 3 for 9m; run b1 b 3@n1 for 60m; "
            "run c1 c 3@n1 for 600m; run c2 c 3@n1 for 500m",
        ),
        Shown(
            "the other holds all",
            "nodes n1=2; queue a 0; queue b 0; run b1 b 1@n1 for 9m; run b2 b 1@n1 for 8m; wait a1 a 1 for 7m",
        ),
    ),
    "growth-waits": (
        Shown("others borrowed", "nodes n1=4; queue a 4; queue b 0; run a1 a 1-4x1@n1 for 90m; run b1 b 3@n1 for 60m"),
        Shown(
            "task by task",
            "nodes n1=4; queue a 2; queue b 0; run a1 a 1-2x1@n1 for 90m; run b1 b 1-3x1@n1,n1,n1 for 60m",
        ),
    ),
    "idle-beside": (
        Shown("a borrower", "nodes n1=4; queue a 2; queue b 0; run a1 a 2@n1 for 90m; wait b1 b 2 for 9m"),
        Shown("an elastic job", "nodes n1=4; queue a 0; run a1 a 1-4x1@n1,n1 for 90m"),
    ),
    "needless": (
        Shown("both leave, one would do", LENT, ("evict b1 for a1; evict b2 for a1; promise a1 n1",)),
        Shown(
            "more leaves for growth than ever grows",
            "nodes n1=4; queue a 3; queue b 0; run a1 a 1-2x1@n1 for 90m; run b1 b 3@n1 for 60m",
            ("evict b1 for a1", "grow a1 n1", ""),
        ),
        Shown(
            "one leaves beside free GPUs",
            "nodes n1=4 n2=2; queue a 2; queue b 0; run b1 b 2@n1 for 90m; run b2 b 2@n1 for 60m; wait a1 a 2 for 9m",
            ("evict b2 for a1; promise a1 n1",),
        ),
        Shown(
            "the free GPUs are lent while one leaves for a guarantee",
            "nodes n1=4 n2=2; queue a 2; queue b 0; run b1 b 2@n1 for 90m; run b2 b 2@n1 for 60m; "
            "wait a1 a 2 for 9m; wait b3 b 2 for 80m",
            ("evict b2 for a1; promise a1 n1; start b3 n2",),
        ),
        Shown(
            "a whole gang, where some of its tasks would do",
            "nodes n1=4; queue a 2; queue b 0; run b1 b 1-4x1@n1,n1,n1,n1 for 90m; wait a1 a 2 for 9m",
            ("evict b1 for a1; promise a1 n1",),
        ),
        Shown(
            "it comes back, and could have stayed",
            "nodes n1=4; queue a 2; queue b 0; queue c 0; run b1 b 2@n1 for 90m; run c1 c 2@n1 for 60m; "
            "wait a1 a 2 for 9m",
            ("evict c1 for a1; promise a1 n1", "evict b1 for c1; promise c1 n1"),
        ),
    ),
    "not-least-harm": (
        Shown("the older of two", LENT, ("evict b1 for a1; promise a1 n1",)),
        Shown(
            "the higher value of one queue",
            "nodes n1=4; class high 1; queue a 2; queue b 0; run b1 b 2@n1 for 90m; run b2 b 2@n1 for 91m high; "
            "wait a1 a 2 for 9m",
            ("evict b2 for a1; promise a1 n1",),
        ),
        Shown(
            "what straddles, and somebody borrows",
            "nodes n1=6; queue a 2; queue b 1; queue c 0; run b1 b 2@n1 for 10m; run c1 c 2@n1 for 900m; "
            "run c2 c 2@n1 for 800m; "
            "wait a1 a 2 for 9m",
            ("straddle b1 for a1; promise a1 n1",),
        ),
        Shown(
            "more than is gained, where as much would do",
            "nodes n1=5; queue a 2; queue b 0; run b1 b 3@n1 for 10m; run b2 b 2@n1 for 900m; wait a1 a 2 for 9m",
            ("evict b1 for a1; promise a1 n1",),
        ),
        Shown(
            "somebody leaves who could move",
            "nodes n1=2 n2=2; queue a 2; queue b 0; queue c 1; run b1 b 1@n1 for 90m; run c1 c 1@n1 for 80m; "
            "run b2 b 1@n2 for 10m; wait a1 a 2 for 9m",
            ("evict b1 for a1; move c1 n2 for a1; promise a1 n1",),
        ),
    ),
    "unlawful": (
        Shown(
            "inside its guarantee",
            "nodes n1=2; queue a 0; queue b 2; run b1 b 2@n1 for 90m; wait a1 a 2 for 9m",
            ("evict b1 for a1; promise a1 n1",),
        ),
        Shown(
            "inside the guarantee of its organisation",
            "nodes n1=2; queue a 0; queue x 2; queue x1 in x 0; run b1 x1 2@n1 for 90m; wait a1 a 2 for 9m",
            ("evict b1 for a1; promise a1 n1",),
        ),
        Shown(
            "the higher value",
            "nodes n1=2; class high 1; queue a 2; run a1 a 2@n1 for 90m high; wait a2 a 2 for 9m",
            ("preempt a1 for a2; promise a2 n1",),
        ),
        Shown(
            "straddling, for a fair share",
            "nodes n1=4; queue a 0; queue b 1; run b1 b 4@n1 for 90m; wait a1 a 1 for 9m",
            ("straddle b1 for a1; promise a1 n1",),
        ),
        Shown(
            "for a queue that takes back guarantees alone",
            "nodes n1=4; queue a 0 reclaim=guaranteed; queue b 0; run b1 b 2@n1 for 90m; run b2 b 2@n1 for 80m; "
            "wait a1 a 2 for 9m",
            ("evict b2 for a1; promise a1 n1",),
        ),
        Shown(
            "a guarantee that is left out is rounded down",
            "nodes n1=3; queue a -; queue b - reclaim=guaranteed; run a1 a 1@n1 for 90m; run a2 a 1@n1 for 80m; "
            "run b1 b 1@n1 for 70m; "
            "wait b2 b 1 for 9m",
            ("evict a2 for b2; promise b2 n1",),
        ),
    ),
    "below-share-pays": (
        Shown("at its share", EQUAL, ("evict b1 for a2; promise a2 n1",)),
        Shown(
            "another is above",
            "nodes n1=9; queue a 0; queue b 0; queue c 0; wait a1 a 3 for 9m; run b1 b 3@n1 for 60m; "
            "run c1 c 3@n1 for 600m; "
            "run c2 c 3@n1 for 500m",
            ("evict b1 for a1; promise a1 n1",),
        ),
        Shown(
            "a team at its share, of an organisation above its own",
            "nodes n1=8; queue x 0; queue x1 in x 0; queue x2 in x 0; queue y 0; run p1 x1 1@n1 for 9m; "
            "run p2 x1 1@n1 for 8m; "
            "run q1 x2 3@n1 for 700m; run q2 x2 3@n1 for 600m; wait y1 y 1 for 7m",
            ("evict p2 for y1; promise y1 n1",),
        ),
    ),
    "equal-claim": (
        Shown("the odd GPU changes hands", EQUAL, ("evict b1 for a2; promise a2 n1",)),
        Shown(
            "the same value in the same queue",
            "nodes n1=2; queue a 2; run a1 a 2@n1 for 90m; wait a2 a 2 for 9m",
            ("preempt a1 for a2; promise a2 n1",),
        ),
        Shown(
            "who holds the odd GPU loses it",
            "nodes n1=3; queue a 0; queue b 0; run a1 a 1@n1 for 90m; run a2 a 1@n1 for 80m; "
            "run b1 b 1@n1 for 70m; wait b2 b 1 for 9m",
            ("evict a2 for b2; promise b2 n1",),
        ),
    ),
    "repeated": (
        Shown(
            "evicted, started, evicted",
            LENT + "; wait b3 b 2 for 3m",
            ("evict b2 for a1; promise a1 n1", "evict b1 for b2; promise b2 n1", "", "evict b2 for b3; promise b3 n1"),
        ),
        Shown("no rest", LENT, ("evict b2 for a1; start a1 n1", "evict a1 for b2; start b2 n1") * 9),
    ),
    "in-vain": (
        Shown(
            "started, then evicted",
            "nodes n1=2; queue a 2; queue b 0; wait b1 b 2 for 90m; wait a1 a 2 for 9m",
            ("start b1 n1", "evict b1 for a1; promise a1 n1"),
        ),
        Shown(
            "grown, then shrunk",
            "nodes n1=2; queue a 1; queue b 0; run b1 b 1-2x1@n1 for 90m; wait a1 a 1 for 9m",
            ("grow b1 n1", "shrink b1 1 for a1; promise a1 n1"),
        ),
    ),
}

SILENT = {
    "shared-waits": (
        Shown(
            "the other of the two has it",
            "nodes n1=2; queue x shared 2; queue x1 in x 0; queue x2 in x 0; queue b 0; run a1 x1 2@n1 for 90m; "
            "wait a2 x2 1 for 9m",
        ),
        Shown(
            "strangers are inside their own guarantee",
            "nodes n1=2; queue x shared 2; queue x1 in x 0; queue b 2; run b1 b 2@n1 for 90m; wait a1 x1 2 for 9m",
        ),
    ),
    "entitled-waits": (
        Shown("others are inside as well", LENT.replace("queue b 0", "queue b 2").replace("run b1 b 2", "run b1 a 2")),
        Shown(
            "what it needs is inside in its organisation",
            "nodes n1=2; queue a 0; queue x 2; queue x1 in x 2; queue x2 in x 0; run a1 x1 2@n1 for 90m; "
            "wait a2 x2 1 for 9m",
        ),
        Shown(
            "a max keeps it out",
            "nodes n1=4; queue a 2 max=2; queue b 0; run a1 a 2@n1 for 90m; run b1 b 2@n1 for 60m; wait a2 a 1 for 9m",
        ),
        Shown(
            "two gangs across nodes would have to leave for one task: more than GPU for GPU",
            "nodes n1=3 n2=3; queue a 3; queue b 0; run b1 b 2x1@n1,n2 for 90m; run b2 b 2x1@n1,n2 for 80m; "
            "run b3 b 2x1@n1,n2 for 70m; wait a1 a 3 for 9m",
        ),
    ),
    "entitled-fits-free": (
        Shown(
            "not preemptible, beyond its guarantee",
            "nodes n1=4; class fixed 0 fixed; queue a 2; queue b 2; run a1 a 1@n1 for 90m fixed; "
            "wait a2 a 2 for 9m fixed",
        ),
        Shown("in pieces", "nodes n1=2 n2=2; queue a 2; queue b 2; run b1 b 2x1@n1,n2 for 90m; wait a1 a 2 for 9m"),
    ),
    "fewer-entitled": (
        Shown(
            "as many by another",
            "nodes n1=2; queue a 2; queue b 0; wait a1 a 2 for 30m; wait a2 a 2x1 for 9m",
            ("start a2 n1 n1",),
        ),
        Shown(
            "the higher value first, though it is smaller",
            "nodes n1=3; class high 1; queue a 3; queue b 0; run b1 b 1@n1 for 90m; wait a1 a 3 for 30m; "
            "wait a2 a 1 for 9m high",
            ("start a2 n1",),
        ),
    ),
    "share-waits": (
        Shown("both are at theirs", EQUAL),
        Shown(
            "the odd GPU is held",
            "nodes n1=3; queue a 0; queue b 0; run a1 a 1@n1 for 9m; run a2 a 1@n1 for 8m; run b1 b 1@n1 for 7m; "
            "wait b2 b 1 for 6m",
        ),
        Shown(
            "an indivisible job would leave its queue below its share",
            "nodes n1=4; queue a 0; queue b 0; run b1 b 4@n1 for 90m; wait a1 a 2 for 9m",
        ),
    ),
    "growth-waits": (
        Shown(
            "beyond its guarantee", "nodes n1=4; queue a 1; queue b 0; run a1 a 1-4x1@n1 for 90m; run b1 b 3@n1 for 60m"
        ),
        Shown(
            "only what straddles", "nodes n1=4; queue a 2; queue b 2; run a1 a 1-4x1@n1 for 90m; run b1 b 3@n1 for 60m"
        ),
    ),
    "idle-beside": (
        Shown(
            "a max keeps it out",
            "nodes n1=4; queue a 2; queue b 0 max=1; run a1 a 2@n1 for 90m; wait b1 b 1-2x2 for 9m",
        ),
        Shown("too large", "nodes n1=2 n2=2; queue a 2; run a1 a 2x1@n1,n2 for 90m; wait b1 a 2 for 9m"),
    ),
    "needless": (
        Shown(
            "both are needed",
            LENT.replace("a1 a 2", "a1 a 4").replace("queue a 2", "queue a 4"),
            ("evict b1 for a1; evict b2 for a1; promise a1 n1",),
        ),
        Shown(
            "the free GPUs are another guarantee's",
            "nodes n1=4 n2=2; queue a 2; queue b 0; queue c 2; run b1 b 2@n1 for 90m; run b2 b 2@n1 for 60m; "
            "wait a1 a 2 for 9m; wait c1 c 2 for 80m",
            ("evict b2 for a1; promise a1 n1; start c1 n2",),
        ),
        Shown(
            "a gang at its least",
            "nodes n1=4; queue a 2; queue b 0; run b1 b 3-4x1@n1,n1,n1,n1 for 90m; wait a1 a 2 for 9m",
            ("evict b1 for a1; promise a1 n1",),
        ),
        Shown(
            "one leaves for the growth of two queues, and one of them grows a round later",
            "nodes n1=4; queue a 2; queue b 2; queue c 0; run a1 a 1-2x1@n1 for 90m; run b1 b 1-2x1@n1 for 80m; "
            "run c1 c 2@n1 for 60m",
            ("evict c1 for a1", "grow a1 n1", "grow b1 n1", ""),
        ),
        Shown(
            "the free GPUs are those of work that is not preemptible, though it may borrow",
            "nodes n1=2 n2=4; class firm 0 fixed mayBorrow; queue a 2; queue c 2; run c1 c 1-2x2@n2,n2 for 60m; "
            "wait a1 a 2 for 9m; wait c2 c 2 for 8m firm",
            ("shrink c1 1 for a1; promise a1 n2; start c2 n1",),
        ),
        Shown(
            "it left GPU for GPU, and came back by lower work that is more than was asked for",
            "nodes n1=3; class high 1; rules moves=0 backOff=60s; queue a 1; queue b 0; run b1 b 1@n1 for 90m high; "
            "run b2 b 2@n1 for 600m; wait a1 a 1 for 9m",
            ("evict b1 for a1; promise a1 n1", "evict b2 for b1; promise b1 n1", ""),
        ),
    ),
    "not-least-harm": (
        Shown("the younger of two", LENT, ("evict b2 for a1; promise a1 n1",)),
        Shown(
            "of two queues the one or the other: it is open how values compare across them",
            "nodes n1=4; class high 1; queue a 2; queue b 0; queue c 0; run b1 b 1@n1 for 90m high; "
            "run b2 b 1@n1 for 95m; "
            "run c1 c 2@n1 for 900m high; wait a1 a 2 for 9m",
            ("evict b1 for a1; evict b2 for a1; promise a1 n1",),
        ),
        Shown(
            "less is lost by two jobs than by one: what a job's eviction costs is open",
            "nodes n1=4; queue a 2; queue b 0; run b1 b 1@n1 for 10m; run b2 b 1@n1 for 20m; "
            "run b3 b 2@n1 for 16m; wait a1 a 2 for 9m",
            ("evict b3 for a1; promise a1 n1",),
        ),
        Shown(
            "on the node of the younger there is no place",
            "nodes n1=2 n2=2; queue a 2; queue b 0; queue c 1; rules moves=0; run b1 b 2@n1 for 90m; "
            "run b2 b 1@n2 for 10m; "
            "run c1 c 1@n2 for 20m; wait a1 a 2 for 9m",
            ("evict b1 for a1; promise a1 n1",),
        ),
    ),
    "unlawful": (
        Shown(
            "straddling, for a guarantee",
            "nodes n1=4; queue a 2; queue b 2; run b1 b 4@n1 for 90m; wait a1 a 1 for 9m",
            ("straddle b1 for a1; promise a1 n1",),
        ),
        Shown(
            "lower work of its own queue",
            "nodes n1=2; class high 1; queue a 2; run a1 a 2@n1 for 90m; wait a2 a 2 for 9m high",
            ("preempt a1 for a2; promise a2 n1",),
        ),
        Shown(
            "not preemptible, and lent",
            "nodes n1=2; class loan 5 fixed mayBorrow; queue a 2; queue b 0; run b1 b 2@n1 for 90m loan; "
            "wait a1 a 2 for 9m",
            ("evict b1 for a1; promise a1 n1",),
        ),
    ),
    "below-share-pays": (
        Shown(
            "above its share",
            "nodes n1=4; queue a 0; queue b 0; run b1 b 2@n1 for 90m; run b2 b 2@n1 for 80m; wait a1 a 2 for 9m",
            ("evict b2 for a1; promise a1 n1",),
        ),
        Shown("for a guarantee", LENT, ("evict b2 for a1; promise a1 n1",)),
    ),
    "equal-claim": (
        Shown(
            "the least served gain",
            "nodes n1=4; queue a 0; queue b 0; run b1 b 2@n1 for 90m; run b2 b 2@n1 for 80m; wait a1 a 2 for 9m",
            ("evict b2 for a1; promise a1 n1",),
        ),
        Shown(
            "one of two equal owners is left with more than the taker had",
            "nodes n1=6; queue a 0; queue b 0; run a1 a 1@n1 for 90m; run b1 b 4@n1 for 80m; "
            "run b2 b 1@n1 for 70m; wait a2 a 1 for 9m",
            ("evict b2 for a2; promise a2 n1",),
        ),
    ),
    "repeated": (
        Shown("evicted once", LENT, ("evict b2 for a1; promise a1 n1",)),
        Shown(
            "evicted again once a protection is over",
            "nodes n1=2; rules backOff=60s; queue a 2; queue b 0; run b1 b 2@n1 for 90m; wait a1 a 2 for 9m",
            ("evict b1 for a1; promise a1 n1", "", "", "evict a1 for b1; start b1 n1", ""),
        ),
    ),
    "in-vain": (
        Shown("started and left alone", LENT, ("evict b2 for a1; promise a1 n1",)),
        Shown(
            "it had moved",
            "nodes n1=2 n2=1; queue a 2; queue b 1; run b1 b 1@n1 for 90m; wait a1 a 2 for 9m",
            ("move b1 n2 for a1; promise a1 n1", "", "evict b1 for a1"),
        ),
    ),
}


def kinds(shown: Shown) -> set[str]:
    """What the judge finds."""
    _, found = judged(world_of(shown.world), scripted(*shown.rounds), rename=None)
    return {finding.kind for finding in found}


@pytest.mark.parametrize(
    ("kind", "shown"), [(kind, shown) for kind, every in FIRES.items() for shown in every], ids=str
)
def test_what_is_wrong_is_found(kind: str, shown: Shown) -> None:
    assert kind in kinds(shown)


@pytest.mark.parametrize(
    ("kind", "shown"), [(kind, shown) for kind, every in SILENT.items() for shown in every], ids=str
)
def test_what_the_rules_allow_or_leave_open_is_no_finding(kind: str, shown: Shown) -> None:
    assert kind not in kinds(shown)


def test_every_kind_is_tried_both_ways() -> None:
    assert FIRES.keys() == SILENT.keys() == KINDS.keys() - {"names-decide"}


def _starting(snapshot: Snapshot, policy: Policy, *, by_name: bool) -> Plan:
    """Starts the first of those that wait: by name, or by submission."""
    waiting = sorted(snapshot.pending, key=lambda job: job.name if by_name else str(job.submitted_at))
    free = len(snapshot.nodes[0].gpus) - sum(len(job.placement) for job in snapshot.jobs)
    lines = [["start", str(job.name), str(snapshot.nodes[0].name)] for job in waiting[:free]]
    return plan_of(snapshot, policy, lines)


@pytest.mark.parametrize("by_name", [True, False])
def test_names_are_found_to_decide_where_they_do(by_name: bool) -> None:
    world = world_of("nodes n1=1; queue a 1; queue b 0; wait j1 a 1 for 9m; wait j2 a 1 for 8m; wait j3 a 1 for 7m")
    _, new = renamed(world, 1)
    assert new["j1"] > min(new.values())

    def decide(snapshot: Snapshot, policy: Policy) -> Plan:
        return _starting(snapshot, policy, by_name=by_name)

    found = judged(world, decide)[1]
    assert ("names-decide" in {finding.kind for finding in found}) == by_name


# The book.


def test_guarantees_that_are_left_out_are_rounded_down() -> None:
    book = Book.of(*world_of("nodes n1=8; queue a -; queue b - weight=2; queue x 1; queue x1 in x -; queue x2 in x -"))
    assert book.guaranteed == {"a": 2000, "b": 4000, "x": 1000, "x1": 0, "x2": 0}


def test_fair_shares_are_guarantees_first_and_then_weights() -> None:
    text = "nodes n1=11; queue a 3; queue b 0 weight=2; queue c 0; wait a1 a 9 for 3m; wait b1 b 9 for 2m; wait c1 c 9 for 1m"
    assert Book.of(*world_of(text)).divisions == ({"a": 5000, "b": 4000, "c": 2000},)


def test_it_is_open_who_gets_the_odd_gpu_unless_somebody_holds_it() -> None:
    text = "nodes n1=3; queue a 0; queue b 0; wait a1 a 3 for 9m; wait b1 b 3 for 8m"
    assert {tuple(fair.values()) for fair in Book.of(*world_of(text)).divisions} == {(1000, 2000), (2000, 1000)}
    held = text.replace("wait a1 a 3", "run a1 a 2@n1")
    assert {tuple(fair.values()) for fair in Book.of(*world_of(held)).divisions} == {(2000, 1000)}


def test_it_is_open_whether_the_largest_remainder_comes_before_who_holds_the_odd_gpu() -> None:
    text = "nodes n1=3; queue a 0; queue b 0 weight=3; run b1 b 3x1@n1,n1,n1 for 9m; wait a1 a 3 for 9m; wait b2 b 3 for 8m"
    assert {tuple(fair.values()) for fair in Book.of(*world_of(text)).divisions} == {(1000, 2000), (0, 3000)}


def test_lines_go_from_the_leaves_up() -> None:
    text = """
    nodes n1=8
    class high 1
    queue x 4
    queue x1 in x 1
    queue x2 in x 3
    queue y 0
    run p x1 2@n1 for 90m high
    run q x2 2@n1 for 80m
    run r x2 2@n1 for 70m
    """
    book = Book.of(*world_of(text))
    standing = {part.job: book.standing(part, "y") for line in book.lines.values() for part in line}
    assert standing == {"p": "inside", "q": "inside", "r": "straddles"}


def test_elastic_jobs_stand_in_line_in_parts() -> None:
    book = Book.of(*world_of("nodes n1=4; queue a 2; queue b 0; run e a 1-4x1@n1,n1,n1,n1 for 9m"))
    found = [book.standing(part, "b") for part in book.jobs["e"].parts]
    assert found == ["inside", "inside", "borrowed", "borrowed"]


def test_the_vector_improves_only_where_the_least_served_gain() -> None:
    assert improves([(0, 2), (4, 2)], [(2, 2), (2, 2)])
    assert not improves([(1, 2), (2, 1)], [(2, 2), (0, 1)])
    assert not improves([(1, 2), (2, 2)], [(2, 2), (1, 2)])


# Trying everything.


def test_tasks_fit_only_where_whole_gpus_are_whole() -> None:
    assert fits(((1000, 1000), (1000, 500)), (1000, 1000, 1000, 500))
    assert not fits(((1000, 500), (1000, 500)), (2000,))
    assert fits(((500, 250),), (500, 250))
    assert not fits(((500, 250),), (250, 250, 250, 250))


def test_the_ways_to_serve_a_job() -> None:
    book = Book.of(*world_of(LENT))
    assert {str(way) for way in ways(book, book.jobs["a1"])} == {"b1 leaves", "b2 leaves"}


def test_the_ways_to_serve_a_fair_share_leave_everybody_theirs() -> None:
    shown = FIRES["share-waits"][0]
    book = Book.of(*world_of(shown.world))
    assert {str(way) for way in share_ways(book, book.jobs["a1"])} == {"c1 leaves", "c2 leaves"}


def test_the_best_set_of_entitled_work() -> None:
    best, takers = best_entitled(Book.of(*world_of(FIRES["fewer-entitled"][0].world)))
    assert (best, [job.name for job in takers]) == ({0: 3000}, ["a1"])


# Worlds.


@pytest.mark.parametrize("parts", [False, True])
def test_worlds_are_the_same_by_the_same_number_and_are_read_as_they_are_written(parts: bool) -> None:
    for number in range(40):
        world = drawn(number, parts=parts)
        assert world == drawn(number, parts=parts)
        assert world_of(text_of(world)) == world
        assert len(world.snapshot.jobs) <= 8
        assert len(world.snapshot.nodes) <= 4


def test_a_closed_world_waits_for_the_end_of_protections() -> None:
    text = (
        "nodes n1=2; class safe 0 minRuntime=20m; queue a 2; queue b 0; run b1 b 2@n1 for 10m safe; wait a1 a 2 for 9m"
    )
    rounds = scripted("", "evict b1 for a1; promise a1 n1")
    course = course_of(world_of(text), rounds)
    assert course.rests
    assert [held.epoch for held in course.rounds] == [1, 1]
    assert int(course.rounds[0].snapshot.time) == 10 * 60_000
