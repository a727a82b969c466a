"""What judges the stories of bare metal finds what it is there for."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from reconciler.store.store import open_store
from solver.model.workload import JobName
from tests.contracts.stores import LEASE, NOW, SPEC, claim_of, intent_of
from tests.e2e.allocations import allocations, audit
from tests.e2e.control_plane import in_postgresql
from tests.e2e.witness import Use, overlaps

FIRST = Use("n1/0", 10, 20, "a")


@pytest.mark.parametrize(
    ("other", "meets"),
    [
        (Use("n1/0", 20, 30, "b"), False),
        (Use("n1/0", 0, 10, "b"), False),
        (Use("n1/1", 10, 20, "b"), False),
        (Use("n1/0", 19, 30, "b"), True),
        (Use("n1/0", 0, 11, "b"), True),
        (Use("n1/0", 12, 15, "b"), True),
        (Use("n1/0", 0, 30, "b"), True),
    ],
)
def test_two_overlap_where_one_device_is_theirs_at_one_time(other: Use, meets: bool) -> None:
    assert overlaps((FIRST, other)) == ([(FIRST, other)] if meets else [])
    assert overlaps((other, FIRST)) == ([(other, FIRST)] if meets else [])


@pytest.mark.postgresql
def test_the_database_tells_of_a_device_that_two_jobs_hold(tmp_path: Path) -> None:
    with in_postgresql(tmp_path) as (_, engine):
        store = open_store(engine.url.render_as_string(hide_password=False))
        audit(engine)
        epoch = store.ledger.lead("first", NOW, LEASE)
        for job, devices in (("a", ("n1/0",)), ("b", ("n1/1",))):
            store.jobs.submit(JobName(job), SPEC, "ada", NOW, job)
            claim = claim_of(job, *devices)
            store.ledger.claim(epoch, claim, intent_of(claim))
        assert overlaps(allocations(engine)) == []
        with engine.begin() as connection:
            connection.execute(text("UPDATE holdings SET device = 'n1/0' WHERE job = 'b'"))
        ((one, other),) = overlaps(allocations(engine))
        assert (one.who, other.who, one.device) == ("a", "b", "n1/0")
        store.close()
