"""Reservation documents in the loop: kept in the ledger from before they begin until they are over, and idle rounds stay idle."""

from __future__ import annotations

import msgspec

from solver.model.cluster import GpuType
from solver.plan.plan import Waits
from solver.plan.reasons import ReservedFor
from solver.policy.reservation import DeclaredReservation
from tests.reconciler.control.plane import Site

MINUTE = 60_000


def test_a_document_is_kept_until_it_is_over_and_others_start_then(site: Site) -> None:
    start = site.clock.now().after(10 * MINUTE)
    document = DeclaredReservation(
        "demo",
        start,
        start.after(10 * MINUTE),
        users=("bob",),
        gpu_type=GpuType("H100"),
        count=2,
        gpus_per_node=4,
        origin="policies/demo.yaml:3",
    )
    site.policy = msgspec.structs.replace(site.policy, reservations=(document,))
    site.rest()
    (held,) = site.store.ledger.reservations()
    assert (held.holder, len(held.tasks), site.events("reservation:demo")) == ("reservation:demo", 2, ["reserved"])
    site.submit("long", ("sleep", "5s"), limit_s=1_200)
    site.submit("short", ("sleep", "5s"), limit_s=60)
    site.rest()
    assert site.state("long") == "reserved"
    assert site.ran("short")
    verdict = next(one for one in site.one_pass().plan.verdicts if one.job == "long")
    assert isinstance(verdict, Waits)
    (why,) = verdict.reasons
    assert isinstance(why, ReservedFor)
    assert (why.holder, why.until, why.origin) == ("reservation:demo", document.until, document.origin)
    site.one_pass(after_s=1_200)
    site.rest()
    assert site.events("reservation:demo") == ["reserved", "unreserved"]
    assert site.store.ledger.reservations() == ()
    assert site.ran("long")
