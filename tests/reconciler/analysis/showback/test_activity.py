"""Measured use is joined to what was held: by stretches that lie wholly in it, of whole GPUs, each once."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping

import pytest

from reconciler.analysis.showback import activity
from reconciler.analysis.showback.account import HeldPiece, account_of
from reconciler.analysis.showback.activity import KnownActivity, measured_by, measured_use, stretches_of
from reconciler.analysis.showback.statement import UsedTime
from reconciler.protocols.gpu_use import STEPS, ActiveTime, PlaceInUse, UseStep, UseStretch
from reconciler.protocols.placements import NodePlacement
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Instant
from tests.reconciler.analysis.showback.facts import HOUR, at, gpu, instance, part, placed, span, whole

MINUTE, DAY = 60_000, 86_400_000
NEVER_DELETED: dict[UseStep, Instant] = dict.fromkeys(STEPS, Instant(0))
N = NodeName("n")


def pieces_of(*held: NodePlacement, end: int = 5 * DAY) -> list[HeldPiece]:
    node = span("n", 0, None, *["idle"] * 4)  # type: ignore[arg-type]
    return account_of(at(0), at(end), [node], held).held


class Minutes:
    """What is known of GPUs by minutes, and hours and days made of them; `deleted`: steps of which nothing is kept any more."""

    def __init__(self) -> None:
        self.known: dict[UseStep, dict[PlaceInUse, dict[Instant, ActiveTime]]] = {
            step: defaultdict(dict) for step in STEPS
        }

    def tell(self, device: DeviceId, start: int, half_percents: int) -> None:
        for step, length in STEPS.items():
            own = self.known[step][N, device]
            begun = Instant(at(start) // length * length)
            before = own.get(begun, ActiveTime(0, 0))
            own[begun] = ActiveTime(before.minutes + 1, before.half_percents + half_percents)

    def of(self, pieces: list[HeldPiece], *deleted: UseStep) -> KnownActivity:
        """As a store says it of what is asked for."""
        wanted = stretches_of(pieces, NEVER_DELETED)
        return {
            step: {
                place: {
                    stretch: ActiveTime(sum(one.minutes for one in own), sum(one.half_percents for one in own))
                    for stretch in wanted[step].get(place[0], ())
                    if (own := [one for start, one in some.items() if stretch.start <= start < stretch.end])
                }
                for place, some in of.items()
                if step not in deleted
            }
            for step, of in self.known.items()
        }

    def used(self, piece: HeldPiece, *deleted: UseStep) -> UsedTime | None:
        return measured_by(self.of([piece], *deleted))(piece)


def test_a_minute_counts_where_a_job_held_the_gpu_from_its_begin_to_its_end() -> None:
    known = Minutes()
    for minute in range(10):
        known.tell(gpu("n", 0), minute * MINUTE, 200)
    (held,) = pieces_of(placed("a", "n", MINUTE + 1, 4 * MINUTE + 59_999, whole("n", 0, 1)))
    assert known.used(held) == UsedTime(2 * MINUTE * 1_000, 2 * MINUTE * 1_000)


def test_what_is_read_some_nodes_at_a_time_is_what_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [NodeName(f"n{number}") for number in range(5)]
    spans = [span(node, 0, None, "idle", "idle") for node in nodes]
    held = [placed("a", node, 30 * MINUTE, HOUR, whole(node, 0, 1), number=at) for at, node in enumerate(nodes, 1)]
    pieces = account_of(at(0), at(DAY), spans, held).held
    asked = list[set[NodeName]]()

    def active(
        step: UseStep, wanted: Mapping[NodeName, Collection[UseStretch]]
    ) -> Mapping[PlaceInUse, Mapping[UseStretch, ActiveTime]]:
        asked.append(set(wanted))
        return {(node, gpu(node, 1)): {one: ActiveTime(30, 60)} for node, some in wanted.items() for one in some}

    monkeypatch.setattr(activity, "NODES_AT_ONCE", 2)
    used = measured_use(pieces, NEVER_DELETED, active)
    assert [used(piece) for piece in pieces] == [UsedTime(30 * MINUTE * 1_000, 60 * MINUTE * 5)] * 5
    assert [len(some) for some in asked if some] == [2, 2, 1]


def test_what_was_measured_as_nothing_is_not_what_was_not_measured() -> None:
    known = Minutes()
    known.tell(gpu("n", 0), 0, 0)
    idle, unknown = pieces_of(
        placed("a", "n", 0, MINUTE, whole("n", 0)), placed("b", "n", 0, MINUTE, whole("n", 1), number=2)
    )
    assert known.used(idle) == UsedTime(MINUTE * 1_000, 0)
    assert known.used(unknown) is None


@pytest.mark.parametrize("task", [part("n", 0, 500), instance("n", 0, 0)])
def test_of_a_gpu_that_is_shared_or_divided_nothing_is_known(task: object) -> None:
    known = Minutes()
    known.tell(gpu("n", 0), 0, 200)
    held = pieces_of(placed("a", "n", 0, HOUR, task))  # type: ignore[arg-type]
    assert known.used(held[0]) is None
    assert not any(stretches_of(held, NEVER_DELETED).values())


def test_the_longest_steps_that_fit_are_asked_for_and_none_that_are_deleted() -> None:
    held = pieces_of(placed("a", "n", DAY - HOUR - 2 * MINUTE, 3 * DAY + 90_000, whole("n", 0)))

    def wanted(kept_since: Instant) -> dict[str, list[tuple[int, int]]]:
        since: dict[UseStep, Instant] = {"minute": kept_since, "hour": kept_since, "day": Instant(0)}
        found = stretches_of(held, since)
        return {
            step: sorted((one.start - at(0), one.end - at(0)) for one in nodes.get(N, ()))
            for step, nodes in found.items()
        }

    day, hour = [(DAY, 3 * DAY)], [(DAY - HOUR, DAY)]
    first, last = (DAY - HOUR - 2 * MINUTE, DAY - HOUR), (3 * DAY, 3 * DAY + MINUTE)
    assert wanted(Instant(0)) == {"day": day, "hour": hour, "minute": [first, last]}
    assert wanted(at(2 * DAY)) == {"day": day, "hour": [], "minute": [last]}


@pytest.mark.parametrize("seed", range(8))
def test_all_that_is_measured_counts_once_and_for_the_job_that_held_it(seed: int) -> None:
    """By another way: minute for minute."""
    chance, known = random.Random(seed), Minutes()
    level = {
        (index, minute): chance.randrange(201) for index in range(2) for minute in range(2_000) if chance.random() < 0.9
    }
    for (index, minute), active in level.items():
        known.tell(gpu("n", index), minute * MINUTE, active)
    held, now = list[NodePlacement](), chance.randrange(200_000)
    while now < 2_000 * MINUTE:
        until = now + chance.choice((30_000, 90_000, 70 * MINUTE, 1_600 * MINUTE)) + chance.randrange(MINUTE)
        indices = chance.choice(((0,), (1,), (0, 1)))
        held.append(placed(f"j{len(held)}", "n", now, until, whole("n", *indices), number=len(held) + 1))
        now = until + chance.choice((0, 0, 5_000))
    pieces = pieces_of(*held)
    used = measured_by(known.of(pieces))
    for piece in pieces:
        own = [
            active
            for (index, minute), active in level.items()
            if any(gpu("n", index) in task.devices for task in piece.of.tasks)
            and piece.since <= at(minute * MINUTE)
            and at((minute + 1) * MINUTE) <= piece.until
        ]
        found = used(piece) or UsedTime(0, 0)
        assert found == UsedTime(len(own) * MINUTE * 1_000, sum(own) * MINUTE * 1_000 // 200)
        assert found.active <= found.measured <= piece.amount


def test_hours_are_known_when_their_minutes_are_deleted() -> None:
    known = Minutes()
    for minute in range(180):
        known.tell(gpu("n", 0), minute * MINUTE, 100)
    (held,) = pieces_of(placed("a", "n", 30 * MINUTE, 150 * MINUTE, whole("n", 0)))
    assert known.used(held) == UsedTime(120 * MINUTE * 1_000, 60 * MINUTE * 1_000)
    left = known.used(held, "minute")
    assert left == UsedTime(60 * MINUTE * 1_000, 30 * MINUTE * 1_000)
