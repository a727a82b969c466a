"""What becomes of many jobs in one pass is not read of all of them for each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from reconciler.store.sql.ledger import SqlLedger
from tests.loop.plane import site_at


@pytest.mark.parametrize("end", ["cancelled", "evicted"])
def test_the_whole_ledger_is_read_as_often_for_one_job_as_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    assert readings(tmp_path / "one", monkeypatch, 1, end) == readings(tmp_path / "many", monkeypatch, 4, end)


def readings(path: Path, monkeypatch: pytest.MonkeyPatch, number: int, end: str) -> Counter[str]:
    """How often everything of a kind was read in passes in which so many jobs leave."""
    read: Counter[str] = Counter()
    with site_at(path) as site:
        names = [site.submit(f"job-{each}", ("sleep", "100h")) for each in range(number)]
        site.rest()
        for name in names:
            if end == "cancelled":
                site.store.jobs.request_cancel(name, "ada")
            else:
                site.store.jobs.request_requeue(name, 1, "ada")
        with monkeypatch.context() as counting:
            for reading in ("claims", "attempts", "intents"):
                count(counting, read, reading)
            site.passes(40)
        assert not [claim for claim in site.store.ledger.claims() if claim.attempt == 1]
    return read


def count(counting: pytest.MonkeyPatch, read: Counter[str], reading: str) -> None:
    """From here on."""
    before = getattr(SqlLedger, reading)

    def counted(ledger: SqlLedger) -> object:
        read[reading] += 1
        return before(ledger)

    counting.setattr(SqlLedger, reading, counted)
