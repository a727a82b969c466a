"""Who had what: rows add up to what was allocated, lost work counts from the last checkpoint, hidden jobs stay hidden."""

from __future__ import annotations

import random
from decimal import Decimal

import msgspec
import pytest

from reconciler.analysis.showback.account import HeldPiece, account_of
from reconciler.analysis.showback.statement import (
    JobFacts,
    ShowbackBy,
    ShowbackRow,
    ShowbackStatement,
    UsedTime,
    statement_of,
)
from reconciler.analysis.showback.tariff import Per, Tariff, hours_of
from reconciler.model.rate_card import Price, Rate, RateCard
from reconciler.protocols.past_jobs import PastJob
from reconciler.protocols.placements import NodePlacement, PlacementEnd
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, QueueName
from tests.reconciler.analysis.showback.facts import (
    A100,
    H100,
    HOUR,
    START,
    RandomCluster,
    at,
    part,
    placed,
    span,
    whole,
)

END = 10 * HOUR
NODE = span("n", 0, None, *["idle"] * 8)  # type: ignore[arg-type]
EVERY_BY: tuple[ShowbackBy, ...] = ("queue", "user", "class", "job", "gpu-type")


def job(
    name: str,
    submitted: int = 0,
    ended: int | None = None,
    gpus: int = 1,
    queue: str = "team",
    user: str = "ann",
    **also: object,
) -> PastJob:
    over = None if ended is None else at(ended)
    made = PastJob(JobName(name), QueueName(queue), user, "", MilliGpu.gpus(gpus), (H100,), at(submitted), over)
    return made._replace(**also)  # type: ignore[arg-type]


def facts_of(*jobs: PastJob, **also: object) -> JobFacts:
    known = JobFacts({one.name: one for one in jobs}, {}, lambda _: (), lambda _, __: True, "standard")
    return known._replace(**also)  # type: ignore[arg-type]


def told(
    *held: NodePlacement,
    facts: JobFacts | None = None,
    by: ShowbackBy = "job",
    cards: tuple[RateCard, ...] = (),
    end: int = END,
    per: Per = "window",
) -> ShowbackStatement:
    account = account_of(at(0), at(end), [NODE], held)
    return statement_of(account, facts or facts_of(), Tariff(cards, at(0), at(end), per), by)


def rows(statement: ShowbackStatement) -> dict[str, ShowbackRow]:
    return {row.name: row for row in statement.rows}


def test_each_way_to_ask_gives_the_same_time_to_others() -> None:
    held = (
        placed("a", "n", 0, 2 * HOUR, whole("n", 0, 1), queue="team", user="ann"),
        placed("b", "n", 0, 3 * HOUR, whole("n", 2), queue="team", user="bob"),
        placed("c", "n", HOUR, None, part("n", 3, 500), queue="other", user="bob"),
    )
    jobs = facts_of(job("a"), job("b", user="bob", priority_class="urgent"), job("c", queue="other", user="bob"))
    hour = 3600

    def of(by: ShowbackBy) -> dict[str, int]:
        return {row.name: int(row.allocated) for row in told(*held, facts=jobs, by=by).rows}

    assert of("job") == {"c": 4.5 * hour, "a": 4 * hour, "b": 3 * hour}
    assert of("queue") == {"team": 7 * hour, "other": 4.5 * hour}
    assert of("user") == {"bob": 7.5 * hour, "ann": 4 * hour}
    assert of("class") == {"standard": 8.5 * hour, "urgent": 3 * hour}
    assert of("gpu-type") == {"H100": 11.5 * hour}
    first = told(*held, facts=jobs).rows[0]
    assert (first.name, first.queue, first.user) == ("c", "other", "bob")


@pytest.mark.parametrize(
    ("ended", "evicted", "failed"),
    [
        ("evicted", 2, 0),
        ("suspended", 2, 0),
        ("requeued", 2, 0),
        ("node", 0, 2),
        ("stuck", 0, 2),
        ("failed", 0, 2),
        ("lost", 0, 2),
        ("succeeded", 0, 0),
        ("cancelled", 0, 0),
        ("", 0, 0),
    ],
)
def test_what_an_attempt_had_done_since_its_last_checkpoint_is_lost(
    ended: PlacementEnd, evicted: int, failed: int
) -> None:
    held = placed("a", "n", 0, 5 * HOUR, whole("n", 0), ended=ended)
    known = facts_of(job("a"), saved={(JobName("a"), 1): at(3 * HOUR), (JobName("a"), 2): at(4 * HOUR)})
    row = rows(told(held, facts=known))["a"]
    assert (row.lost_to_evictions, row.lost_to_failures) == (Decimal(evicted * 3600), Decimal(failed * 3600))
    without = rows(told(held))["a"]
    assert without.lost_to_evictions + without.lost_to_failures == (5 * 3600 if evicted or failed else 0)


def test_an_attempt_that_changes_its_size_is_lost_by_how_it_ends_at_last() -> None:
    first = placed("a", "n", 0, 2 * HOUR, whole("n", 0), ended="grew", number=1)
    then = placed("a", "n", 2 * HOUR, 3 * HOUR, whole("n", 0, 1), ended="evicted", number=2)
    known = facts_of(saved={(JobName("a"), 1): at(HOUR)})
    assert rows(told(first, then, facts=known))["a"].lost_to_evictions == (1 + 2) * 3600
    # Where the window ends before, what comes behind it is asked for.
    other = placed("a", "n", 3 * HOUR, 4 * HOUR, whole("n", 0), attempt=2, ended="succeeded", number=3)
    known = known._replace(placed=lambda _: (first, then, other))
    assert rows(told(first, facts=known, end=2 * HOUR))["a"].lost_to_evictions == 3600


def test_pods_that_are_deleted_for_one_of_their_gang_are_lost_as_it_is() -> None:
    def pods(first: PlacementEnd, *others: NodePlacement) -> tuple[Decimal, Decimal]:
        there = (
            placed("a", "n", 0, HOUR, whole("n", 0), ended=first, number=1),
            placed("a", "m", 0, 2 * HOUR, whole("m", 0), ended="cancelled", number=2),
        )
        row = rows(told(*there, *others))["a"]
        return row.lost_to_evictions, row.lost_to_failures

    hours, none = Decimal(3 * 3600), Decimal(0)
    assert pods("failed") == (none, hours)
    assert pods("evicted") == (hours, none)
    assert pods("succeeded") == pods("cancelled") == (none, none)
    # Another pod came in its place, so that it is not why the gang ended.
    assert pods("failed", placed("a", "n", HOUR, 2 * HOUR, whole("n", 0), ended="cancelled", number=3)) == (none, none)


def test_a_job_waits_while_it_is_there_and_holds_nothing() -> None:
    held = (
        placed("a", "n", 2 * HOUR, 3 * HOUR, whole("n", 0)),
        placed("a", "m", 2 * HOUR, 3 * HOUR, whole("m", 0)),
        placed("a", "n", 5 * HOUR, 6 * HOUR, whole("n", 0), attempt=2),
    )
    known = facts_of(
        job("a", HOUR, 6 * HOUR, gpus=2),
        job("waits", 8 * HOUR),
        job("was", -HOUR, HOUR, gpus=3),
        job("cpu", 0, gpus=0),
        job("either", 9 * HOUR, gpu_types=("A100", "H100")),
    )
    found = told(*held, facts=known)
    assert {row.name: int(row.waiting) // 3600 for row in found.rows} == {"a": 6, "waits": 2, "was": 3, "either": 1}
    types = rows(told(*held, facts=known, by="gpu-type"))
    assert {name: int(row.waiting) // 3600 for name, row in types.items()} == {"H100": 11, "": 1}


def test_what_is_not_measured_is_unknown_and_never_nothing() -> None:
    held = placed("a", "n", 0, HOUR, whole("n", 0)), placed("b", "n", 0, HOUR, whole("n", 1))
    (row,) = told(*held, by="queue").rows
    assert (row.active, row.idle_held, row.unmeasured, row.cost, row.unpriced) == (
        None,
        None,
        Decimal(7200),
        None,
        Decimal(7200),
    )

    half = UsedTime(HOUR * 500, HOUR * 125)
    known = facts_of(used=lambda piece: half if piece.placement.job == "a" else None)
    (row,) = told(*held, by="queue", facts=known).rows
    assert (row.active, row.idle_held, row.unmeasured) == (Decimal(450), Decimal(1350), Decimal(5400))


def test_what_a_caller_may_not_see_is_one_row_without_a_name() -> None:
    held = (
        placed("a", "n", 0, HOUR, whole("n", 0)),
        placed("b", "n", 0, HOUR, whole("n", 1), user="bob"),
        placed("c", "n", 0, HOUR, whole("n", 2), user="cid"),
    )
    known = facts_of(
        job("a"), job("b", user="bob"), job("w", user="bob", queue="other"), sees=lambda _, user: user == "ann"
    )
    for by in ("job", "user"):
        statement = told(*held, facts=known, by=by)
        hidden, seen = statement.rows
        assert (hidden.name, hidden.redacted, hidden.queue, hidden.user, hidden.allocated) == (
            "",
            True,
            "",
            "",
            Decimal(7200),
        )
        assert (seen.redacted, seen.user, hidden.waiting) == (False, "ann", Decimal((9 + 10) * 3600))
        assert not {"b", "c", "w", "bob", "cid"} & {one for row in statement.rows for one in (row.name, row.user)}
        assert {(one.job, one.user, one.redacted) for one in statement.charges} == {
            ("a" if by == "job" else "", "ann", False),
            ("", "", True),
        }
    (team, _) = told(*held, facts=known, by="queue").rows
    assert (team.name, team.allocated, team.redacted) == ("team", Decimal(3 * 3600), False)


CARD = RateCard(
    "card", START.after(HOUR), "EUR", (Rate(Price.parse("2.5"), gpu_type=H100), Rate(Price.parse("0.1"), gpu_type=A100))
)


def test_costs_are_what_has_a_price_and_the_rest_is_told() -> None:
    held = placed("a", "n", 0, 3 * HOUR, whole("n", 0, 1)), placed("b", "n", 0, HOUR, whole("n", 2))
    found = rows(told(*held, cards=(CARD,)))
    assert (found["a"].cost, found["a"].unpriced) == (Decimal(10), Decimal(2 * 3600))
    assert (found["b"].cost, found["b"].unpriced) == (None, Decimal(3600))


def test_parts_of_a_gpu_cost_by_their_share() -> None:
    held = placed("a", "n", HOUR, 2 * HOUR, part("n", 0, 125)), placed("b", "n", HOUR, 2 * HOUR, part("n", 0, 500))
    assert {name: row.cost for name, row in rows(told(*held, cards=(CARD,))).items()} == {
        "a": Decimal("0.3125"),
        "b": Decimal("1.25"),
    }


def test_charges_divide_the_time_by_day() -> None:
    held = placed("a", "n", 20 * HOUR, 50 * HOUR, whole("n", 0))
    statement = told(held, cards=(CARD,), end=60 * HOUR, per="day", by="queue")
    found = [(one.start - at(0), one.quantity, one.cost, one.price, one.rate_card) for one in statement.charges]
    price = Price.parse("2.5")
    assert found == [
        (0, Decimal(4), Decimal(10), price, "card"),
        (24 * HOUR, Decimal(24), Decimal(60), price, "card"),
        (48 * HOUR, Decimal(2), Decimal(5), price, "card"),
    ]
    charge = statement.charges[0]
    assert (charge.queue, charge.user, charge.job, charge.pool, charge.gpu_type) == ("team", "", "", "p", "H100")
    assert charge.priority_class == "standard"


def part_measured(piece: HeldPiece) -> UsedTime | None:
    """Of some nothing is known, of others more or less."""
    chance = random.Random(piece.since * 31 + piece.of.placement.number)
    measured = chance.randint(0, piece.amount)
    return UsedTime(measured, chance.randint(0, measured)) if chance.random() < 0.7 else None


@pytest.mark.parametrize("seed", range(60))
def test_whoever_had_it_it_adds_up(seed: int) -> None:
    chance, cluster = random.Random(seed), RandomCluster(seed)
    ends: tuple[PlacementEnd, ...] = ("succeeded", "evicted", "node", "grew", "")
    held = [
        one._replace(placement=placement)
        if hasattr(one, "_replace")
        else NodePlacement(placement, one.node, one.gpus, one.tasks)
        for one in cluster.placed
        for placement in [
            msgspec.structs.replace(
                one.placement,
                queue=QueueName(chance.choice("xyz")),
                user=chance.choice("ab"),
                ended=chance.choice(ends),
            )
        ]
    ]
    jobs = [job(one.placement.job, 0, None, queue=one.placement.queue, user=one.placement.user) for one in held]
    saved = {(one.placement.job, 1): at(chance.randrange(60)) for one in held if chance.random() < 0.5}
    known = facts_of(*jobs, saved=saved, sees=lambda queue, user: queue != "x" or user == "a", used=part_measured)
    account = account_of(at(0), at(60), cluster.spans, held)
    allocated = sum(of["allocated"] for of in account.totals.values())
    card = RateCard("c", START.after(chance.randrange(60)), "EUR", (Rate(Price.parse(3), gpu_type=H100),))
    tariff = Tariff((card,), at(0), at(60))
    figures: set[tuple[Decimal, ...]] = set()
    for by in EVERY_BY:
        statement = statement_of(account, known, tariff, by)
        assert sum(row.allocated for row in statement.rows) == Decimal(allocated) / 10**6
        for row in statement.rows:
            assert (row.active or 0) + (row.idle_held or 0) + row.unmeasured == row.allocated
            assert min(row.active or 0, row.idle_held or 0, row.unmeasured) >= 0
            assert 0 <= row.lost_to_evictions + row.lost_to_failures <= row.allocated
            assert 0 <= row.unpriced <= row.allocated
        names = "lost_to_evictions", "lost_to_failures", "waiting", "unpriced", "unmeasured"
        figures.add(tuple(sum(getattr(row, name) for row in statement.rows) for name in names))
        quantity = sum(one.quantity for one in statement.charges)
        assert abs(quantity - hours_of(allocated)) <= Decimal(len(statement.charges) + 1) / 10**9
        assert all(one.cost is None or one.cost == one.quantity * 3 for one in statement.charges)
    assert len(figures) == 1
