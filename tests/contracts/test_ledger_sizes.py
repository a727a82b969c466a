"""Every ledger lets a gang that runs change its size; see reconciler/protocols/ledger.py."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from reconciler.model.job_record import JobOutcome
from reconciler.protocols.backend import Epoch, StaleEpochError
from reconciler.protocols.ledger import Claim, ClaimRefusedError, Marks
from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import Intent
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName, TaskPlacement
from tests.contracts.stores import LEASE, NOW, Stores, claim_of, intent_of, lead, submit, take


def growth_of(job: str, *devices: str, first: int = 1, attempt: int = 1) -> Intent:
    """One more worker per device, counted from an index."""
    tasks = tuple(
        TaskPlacement("worker", first + place, NodeName("n1"), (DeviceId(device),))
        for place, device in enumerate(devices)
    )
    return Intent("grow", JobName(job), attempt, NOW, NOW.after(60_000), tasks)


def running(stores: Stores, epoch: Epoch, name: str, *devices: str) -> Claim:
    """A gang that runs since NOW."""
    submit(stores, name)
    claim = claim_of(name, *devices)
    take(stores, epoch, claim)
    stores.ledger.confirm_running(epoch, claim.job, 1, NOW)
    return msgspec.structs.replace(claim, running_since=NOW)


def test_growing_adds_tasks_to_the_claim_and_holds_their_devices(stores: Stores) -> None:
    epoch = lead(stores)
    before = running(stores, epoch, "a", "g1")
    asked = growth_of("a", "g2", "g3")
    grown = stores.ledger.grow(epoch, asked)
    assert grown == msgspec.structs.replace(before, tasks=(*before.tasks, *asked.tasks), growth=1)
    stores.reopen()
    assert stores.ledger.claims() == (grown,)
    assert stores.ledger.intents() == (asked,)
    submit(stores, "b")
    with pytest.raises(ClaimRefusedError, match="g3 by a"):
        take(stores, epoch, claim_of("b", "g3"))
    stores.ledger.confirm_grown(epoch, JobName("a"), 1)
    stores.ledger.confirm_grown(epoch, JobName("a"), 1)
    assert stores.ledger.intents() == ()
    assert stores.ledger.grow(epoch, growth_of("a", "g4", first=3)).growth == 2


def test_a_restart_is_a_growth_by_nothing(stores: Stores) -> None:
    epoch = lead(stores)
    before = running(stores, epoch, "a", "g1", "g2")
    asked = msgspec.structs.replace(growth_of("a"), tasks=before.tasks[1:])
    again = stores.ledger.restart(epoch, asked)
    assert again == msgspec.structs.replace(before, growth=1, marks=Marks(restarted_at=asked.asked_at))
    stores.reopen()
    assert (stores.ledger.claims(), stores.ledger.intents()) == ((again,), (asked,))
    with pytest.raises(ClaimRefusedError, match="still grows"):
        stores.ledger.restart(epoch, asked)
    stores.ledger.confirm_grown(epoch, JobName("a"), 1)
    assert stores.ledger.restart(epoch, asked).growth == 2


def test_only_what_a_running_gang_has_is_restarted(stores: Stores) -> None:
    epoch = lead(stores)
    claim = running(stores, epoch, "a", "g1")
    for asked, why in ((growth_of("a", "g2"), "no such task"), (growth_of("a", "g1", attempt=2), "does not hold")):
        with pytest.raises(ClaimRefusedError, match=why):
            stores.ledger.restart(epoch, asked)
    assert (stores.ledger.claims(), stores.ledger.intents()) == ((claim,), ())
    with pytest.raises(StaleEpochError):
        stores.ledger.restart(Epoch(epoch - 1), msgspec.structs.replace(growth_of("a"), tasks=claim.tasks))


def test_a_growth_that_may_not_be_is_refused_whole(stores: Stores) -> None:
    epoch = lead(stores)
    claim = running(stores, epoch, "a", "g1")
    running(stores, epoch, "b", "g2")
    for asked, why in (
        (growth_of("a", "g3", "g2"), "g2 by b"),
        (growth_of("a", "g3", "g3"), "twice"),
        (growth_of("a", "g3", "g1"), "g1 by a"),
        (growth_of("a", "g3", first=0), "worker/0 already"),
        (growth_of("a", "g3", attempt=2), "does not hold attempt 2"),
        (growth_of("c", "g3"), "does not hold attempt 1"),
    ):
        with pytest.raises(ClaimRefusedError, match=why):
            stores.ledger.grow(epoch, asked)
    assert stores.ledger.claims()[0] == claim
    assert stores.ledger.intents() == ()
    submit(stores, "d")
    take(stores, epoch, claim_of("d", "g3"))


def test_only_a_gang_that_simply_runs_grows(stores: Stores) -> None:
    epoch = lead(stores)
    submit(stores, "a")
    take(stores, epoch, claim_of("a", "g1"))
    with pytest.raises(ClaimRefusedError, match="does not run yet"):
        stores.ledger.grow(epoch, growth_of("a", "g2"))
    stores.ledger.confirm_running(epoch, JobName("a"), 1, NOW)
    stores.ledger.grow(epoch, growth_of("a", "g2"))
    with pytest.raises(ClaimRefusedError, match="still grows"):
        stores.ledger.grow(epoch, growth_of("a", "g3", first=2))
    stores.ledger.confirm_grown(epoch, JobName("a"), 1)
    stores.ledger.ask(epoch, intent_of(claim_of("a", "g1"), "stop"))
    with pytest.raises(ClaimRefusedError, match="is being stopped"):
        stores.ledger.grow(epoch, growth_of("a", "g3", first=2))
    running(stores, epoch, "b", "g4")
    stores.jobs.finish(epoch, JobName("b"), JobOutcome("succeeded", NOW))
    with pytest.raises(ClaimRefusedError, match="has ended"):
        stores.ledger.grow(epoch, growth_of("b", "g5"))


def test_shares_of_a_growing_gang_add_up_with_its_own(stores: Stores) -> None:
    epoch = lead(stores)
    submit(stores, "a")
    whole = claim_of("a", "g1")
    part = msgspec.structs.replace(whole.tasks[0], share=MilliGpu(600))
    take(stores, epoch, msgspec.structs.replace(whole, tasks=(part,)))
    stores.ledger.confirm_running(epoch, JobName("a"), 1, NOW)

    def more(milli: int) -> Intent:
        asked = growth_of("a", "g1")
        return msgspec.structs.replace(asked, tasks=(msgspec.structs.replace(asked.tasks[0], share=MilliGpu(milli)),))

    with pytest.raises(ClaimRefusedError, match="g1 by a"):
        stores.ledger.grow(epoch, more(401))
    stores.ledger.grow(epoch, more(400))
    submit(stores, "b")
    with pytest.raises(ClaimRefusedError, match="g1 by a"):
        take(stores, epoch, claim_of("b", "g1"))


def test_shrinking_keeps_devices_until_it_is_confirmed(stores: Stores) -> None:
    epoch = lead(stores)
    before = running(stores, epoch, "a", "g1", "g2")
    shrink = msgspec.structs.replace(intent_of(before, "shrink"), tasks=before.tasks[1:], beneficiary=JobName("b"))
    stores.ledger.ask(epoch, shrink)
    stores.ledger.ask(epoch, msgspec.structs.replace(shrink, tasks=before.tasks))  # the first stays
    stores.reopen()
    assert stores.ledger.intents() == (shrink,)
    submit(stores, "b")
    with pytest.raises(ClaimRefusedError, match="g2 by a"):
        take(stores, epoch, claim_of("b", "g2"))
    stores.ledger.confirm_shrunk(epoch, JobName("a"), 2, NOW)  # another attempt: nothing happens
    assert stores.ledger.intents() == (shrink,)
    for _ in range(2):
        stores.ledger.confirm_shrunk(epoch, JobName("a"), 1, NOW)
        assert stores.ledger.claims() == (msgspec.structs.replace(before, tasks=before.tasks[:1]),)
        assert stores.ledger.intents() == ()
    assert stores.ledger.evictions() == {}
    take(stores, epoch, claim_of("b", "g2"))


def test_who_leaves_before_it_has_joined_joins_no_more(stores: Stores) -> None:
    epoch = lead(stores)
    before = running(stores, epoch, "a", "g1")
    grow = growth_of("a", "g2", "g3")
    stores.ledger.grow(epoch, grow)

    def shrink(first: int, last: int) -> None:
        stores.ledger.ask(epoch, msgspec.structs.replace(grow, kind="shrink", tasks=grow.tasks[first:last]))
        stores.ledger.confirm_shrunk(epoch, JobName("a"), 1, NOW)

    shrink(0, 1)
    assert stores.ledger.intents() == (msgspec.structs.replace(grow, tasks=grow.tasks[1:]),)
    shrink(1, 2)
    assert stores.ledger.intents() == ()
    assert stores.ledger.claims() == (msgspec.structs.replace(before, growth=1),)


def test_what_a_gang_has_run_adds_up_over_its_sizes(stores: Stores) -> None:
    epoch, name = lead(stores), JobName("a")
    before = running(stores, epoch, "a", "g1", "g2")
    stores.ledger.grow(epoch, msgspec.structs.replace(growth_of("a", "g3", first=2), asked_at=NOW.after(1_000)))
    stores.ledger.ask(epoch, msgspec.structs.replace(intent_of(before, "shrink"), tasks=before.tasks))
    stores.ledger.confirm_shrunk(epoch, name, 1, NOW.after(3_000))
    stores.ledger.confirm_shrunk(epoch, name, 1, NOW.after(4_000))
    assert stores.ledger.served().get(name, 0) == 0, "only ended attempts are in it"
    stores.ledger.release(epoch, name, 1, NOW.after(10_000))
    assert stores.ledger.served() == {"a": 2 * 1_000 + 3 * 2_000 + 1 * 7_000}


def test_a_stale_leader_changes_no_size(stores: Stores) -> None:
    stale = lead(stores, "first")
    claim = running(stores, stale, "a", "g1", "g2")
    shrink = msgspec.structs.replace(intent_of(claim, "shrink"), tasks=claim.tasks[1:])
    stores.ledger.ask(stale, shrink)
    lead(stores, "second", NOW.after(LEASE))
    writes: tuple[Callable[[], object], ...] = (
        lambda: stores.ledger.grow(stale, growth_of("a", "g3", first=2)),
        lambda: stores.ledger.confirm_grown(stale, JobName("a"), 1),
        lambda: stores.ledger.confirm_shrunk(stale, JobName("a"), 1, NOW),
    )
    for write in writes:
        with pytest.raises(StaleEpochError):
            write()
    assert stores.ledger.claims() == (claim,)
    assert stores.ledger.intents() == (shrink,)
