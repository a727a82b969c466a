"""The history of a server: exported page by page, without what jobs run, and replayed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from reconciler.analysis.backtest.past import read_history
from reconciler.api.server import ApiServer
from reconciler.cli.exits import ExitCode
from reconciler.cli.main import run
from reconciler.client import ApiError, Client
from reconciler.documents.schemas import data_folder
from reconciler.model.job_record import JobOutcome
from reconciler.protocols.history import Event
from solver.model.workload import JobName, TaskPlacement
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, Site, spec

SECRET = "s3cret"
MINUTE = 60_000


@pytest.fixture
def ran(site: Site) -> Site:
    """Three jobs: one ran for an hour after five minutes, one was cancelled, and one waits."""
    secret = msgspec.structs.replace(spec(command=("train", SECRET)), env={"KEY": SECRET})
    for number, name in enumerate(("trained", "cancelled", "waits")):
        site.store.jobs.submit(JobName(name), secret, "ann", NOW.after(number), "")
    site.bind("trained", TaskPlacement("worker", 0, NODES[0].name, (NODES[0].gpus[0].id,)))
    begun, done, epoch = NOW.after(5 * MINUTE), NOW.after(65 * MINUTE), site.epoch()
    site.store.history.record_event(Event(begun, "running", "trained", SECRET, "loop", "running", 1))
    site.store.jobs.finish(epoch, JobName("trained"), JobOutcome("succeeded", done, 0, SECRET, 1))
    site.store.history.record_event(Event(done.after(9), "released", "trained", SECRET, "loop", "", 1))
    site.store.jobs.finish(epoch, JobName("cancelled"), JobOutcome("cancelled", NOW.after(10), message=SECRET))
    return site


def test_pages_are_every_job_once_newest_first_and_never_what_they_run(ran: Site, client: Client) -> None:
    page = client.past.page(limit=2)
    rest = client.past.page(page.next, limit=2)
    assert [one.name for one in (*page.items, *rest.items)] == ["waits", "cancelled", "trained"]
    assert rest.next == ""
    (trained,) = rest.items
    assert [(one.started_at, one.ended_at) for one in trained.attempts] == [
        (NOW.after(5 * MINUTE), NOW.after(65 * MINUTE))
    ]
    assert SECRET not in repr((page, rest))
    with pytest.raises(ApiError) as refused:
        client.past.page("bm9ib2R5")
    assert refused.value.problem.code == "bad-cursor"


def test_an_export_is_replayed(
    ran: Site, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUORATE_TOKEN", TOKEN)
    out = tmp_path / "history.jsonl.gz"
    assert run(["history", "export", "--out", str(out), "--alias", "--server", server.url]) == ExitCode.OK
    assert "3 jobs written" in capsys.readouterr().err
    (one,) = read_history(out).jobs
    assert (one.job.name, one.job.user, one.job.submitted_at, one.duration) == ("job-2", "user-1", NOW, 60 * MINUTE)
    tried = ["simulate", "--history", str(out), "--days", "1", "--policies", str(data_folder("policies")), "-o", "json"]
    assert run(tried) == ExitCode.OK
    captured = capsys.readouterr()
    (figures,) = json.loads(captured.out)["policies"]
    assert (figures["jobs"], figures["started"], figures["ended"]) == (1, 1, 1)
    assert "left out: 1 job that ended without ever having run" in captured.err
    assert "left out: 1 job still waiting" in captured.err
