"""What rounds would have done beside Slurm, as looks follow each other; and what a look that fails does to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reconciler.analysis.traces import TraceUnreadableError
from tests.reconciler.slurm.fake_slurm import VERSIONS, Beside, FakeJob, FakeSlurm, beside_slurm, of


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    with beside_slurm(tmp_path) as made:
        yield made


@pytest.mark.parametrize("version", VERSIONS)
def test_a_start_is_earlier_by_as_long_as_slurm_took(tmp_path: Path, version: str) -> None:
    """Eight GPUs; Slurm leaves four of them idle for two minutes while a job waits that fits."""
    with beside_slurm(tmp_path, version) as beside:
        runs = FakeJob(1, "RUNNING", "n1", started=1, detail="gpu:h100:4(IDX:0-3)")
        for _ in range(3):
            beside.look(runs, FakeJob(2))
        found = beside.look(runs, FakeJob(2))
        assert beside.runner.status.condition == "observing", beside.runner.status.message
        waited = of(found, "train-2")
        assert (waited.started_at, found.counts.would_start) == (None, 1)
        now = beside.at() + 30
        found = beside.look(runs, FakeJob(2, "RUNNING", "n2", started=now, detail="gpu:h100:4(IDX:0-3)"))
        begun = of(found, "train-2")
        assert begun.start(found.look_ms) == "earlier"
        assert (begun.ahead_ms, found.counts.earlier, found.counts.earlier_ms) == (120_000, 1, 120_000)
        assert found.use.used_ms / found.use.gpu_ms == pytest.approx(4 / 8)
        assert found.use.planned_ms / found.use.gpu_ms == pytest.approx(8 / 8)
        assert found.doubts == ()


def test_a_job_that_slurm_starts_at_once_is_the_same(beside: Beside) -> None:
    beside.look()
    beside.look(FakeJob(1, submitted=50))
    found = beside.look(FakeJob(1, "RUNNING", "n1", submitted=50, started=65, detail="gpu:h100:4(IDX:0-3)"))
    assert (found.counts.same, found.counts.earlier, found.counts.later) == (1, 0, 0)


def test_a_job_that_a_round_lets_wait_says_for_what(beside: Beside) -> None:
    """Biology has no guarantee and physics waits for all eight GPUs: no round starts biology, and Slurm does."""
    small = FakeJob(2, account="biology", name="fold", gpus=8, more={"node_count": 2})
    running = FakeJob(1, "RUNNING", "n1", started=1, detail="gpu:h100:4(IDX:0-3)")
    beside.look(running, small)
    assert of(beside.observer.summary, "fold-2").waits_for
    found = beside.look(
        running,
        FakeJob(2, "RUNNING", "n2", account="biology", name="fold", gpus=4, started=55, detail="gpu:h100:4(IDX:0-3)"),
    )
    later = of(found, "fold-2")
    assert (later.start(found.look_ms), found.counts.later, later.would_start_at) == ("later", 1, None)
    assert later.waits_for


def test_a_borrower_would_be_evicted_for_the_guarantee(beside: Beside) -> None:
    borrowers = [
        FakeJob(n, "RUNNING", f"n{n}", account="biology", started=1, detail="gpu:h100:4(IDX:0-3)") for n in (1, 2)
    ]
    beside.look(*borrowers, after_s=600)
    beside.look(*borrowers, FakeJob(3))
    found = beside.look(*borrowers, FakeJob(3))
    assert found.counts.evicted == len(found.evictions) == 1
    assert (found.evictions[0].beneficiary, found.evictions[0].gpus) == ("train-3", 4)
    kinds = [each.kind for each in beside.store.history.events(found.evictions[0].job)]
    assert kinds.count("would-evict") == 1
    assert beside.slurm.calls
    assert {call.partition(" ")[0] for call in beside.slurm.calls} <= {"squeue", "scontrol", "sinfo"}
    assert {call for call in beside.slurm.calls if call.startswith("scontrol")} == {"scontrol show nodes --json"}


def test_what_no_round_can_start_is_left_to_slurm_and_counted(beside: Beside) -> None:
    held = [FakeJob(1, reason="Dependency"), FakeJob(2, reason="JobHeldUser"), FakeJob(3, reason="Licenses")]
    asks = FakeJob(4, minutes=None, more={"features": "a100", "licenses": "matlab:1"})
    found = beside.look(*held, asks)
    assert [one.job for one in found.starts] == ["train-4"]
    said = "\n".join(found.doubts)
    for told in (
        "1 job without a time limit",
        "3 jobs held back by dependencies",
        "1 job with features",
        "1 job with licences",
    ):
        assert told in said
    assert list(beside.on_disk()) == ["train-4"]


def test_jobs_that_can_not_be_placed_close_their_nodes_and_are_named(beside: Beside) -> None:
    """Slurm's n1 runs a job of a node that no NodePool has as well: what of n1 is free is not known."""
    beside.slurm.states["x9"] = ["IDLE"]
    strange = FakeJob(1, "RUNNING", "n[1],x9", started=1)
    beside.look(strange, FakeJob(2), FakeJob(3))
    found = beside.look(strange, FakeJob(2), FakeJob(3))
    assert found.counts.would_start == 1, "n2 alone is known to be free"
    assert any("left out, such as train-1" in doubt for doubt in found.doubts)
    assert any("no NodePool has the nodes x9" in doubt for doubt in found.doubts)


@pytest.mark.parametrize("version", VERSIONS)
def test_nodes_that_slurm_closes_take_nothing(tmp_path: Path, version: str) -> None:
    with beside_slurm(tmp_path, version) as beside:
        beside.slurm.states["n1"] = ["DOWN", "NOT_RESPONDING"] if version >= "23" else ["DOWN*"]
        beside.slurm.states["n2"] = ["IDLE", "DRAIN"]
        assert beside.look(FakeJob(1)).counts.would_start == 0
        beside.slurm.states["n2"] = ["IDLE"]
        assert beside.look(FakeJob(1)).counts.would_start == 1


def test_groups_of_sinfo_do_where_scontrol_prints_no_json(beside: Beside) -> None:
    beside.slurm.fails("scontrol", "scontrol: fatal: no such plugin: serializer/json")
    assert beside.look(FakeJob(1)).counts.would_start == 1
    beside.look(FakeJob(1))
    asked = [call.partition(" ")[0] for call in beside.slurm.calls]
    assert asked == ["scontrol", "sinfo", "squeue", "sinfo", "squeue"], "the one that answered is asked first"


@pytest.mark.parametrize(
    ("break_it", "told"),
    [
        (lambda slurm: slurm.fails("squeue", "slurm_load_jobs error: Unable to contact slurm controller"), "Unable to contact"),
        (lambda slurm: slurm.prints("squeue", '{"jobs": [{"job_id": 1,'), "not JSON"),
        (lambda slurm: slurm.prints("squeue", {"errors": []}), "no jobs are in it"),
        (lambda slurm: slurm.prints("scontrol", ""), "not JSON"),
        (lambda slurm: (slurm.folder / "squeue").unlink(), "Install Slurm's client commands"),
        (lambda slurm: slurm.hangs("squeue"), "no answer within"),
    ],
    ids=["fails", "half", "empty", "nodes", "gone", "hangs"],
)  # fmt: skip
def test_a_look_that_fails_is_told_and_the_next_goes_on(
    tmp_path: Path, break_it: Callable[[FakeSlurm], object], told: str
) -> None:
    """Nothing of what was known before is lost, and the time between says nothing of use."""
    with beside_slurm(tmp_path, timeout_s=0.5) as beside:
        runs = FakeJob(1, "RUNNING", "n1", started=1)
        before = beside.look(runs, FakeJob(2))
        script = (beside.slurm.folder / "squeue").read_text()
        beside.clock.advance(30_000)
        break_it(beside.slurm)
        if told == "not JSON" and beside.slurm.version >= "23":
            beside.slurm.prints("sinfo", "")
        beside.runner.one_pass()
        status, failed = beside.runner.status, beside.observer.summary
        assert status.condition == "backend-unreachable"
        assert told in status.message
        assert told in failed.failure
        assert (failed.looks, failed.failed, failed.starts) == (before.looks, 1, before.starts)
        beside.slurm.goes_on("squeue")
        (beside.slurm.folder / "squeue").write_text(script)
        (beside.slurm.folder / "squeue").chmod(0o755)
        after = beside.look(runs, FakeJob(2), after_s=3_600)
        assert beside.runner.status.condition == "observing"
        assert (after.looks, after.failed, after.use.measured_ms) == (2, 1, 0)
        assert after.use.unmeasured_ms == 3_630_000
        assert list(beside.on_disk()) == ["train-1", "train-2"]


def test_odd_records_cost_only_themselves(beside: Beside) -> None:
    beside.look()
    good = beside.slurm._record(FakeJob(2))
    odd = [
        None, 5, {}, {"job_id": None, "job_state": "PENDING"}, {"job_id": 7, "job_state": 3}, {**good, "job_id": 8, "nodes": "n[1"},
        {**beside.slurm._record(FakeJob(9, "RUNNING", "n[1-", started=1))}, {**good, "job_id": 10, "tres_req_str": "gres/gpu=x"},
        good,
    ]  # fmt: skip
    beside.slurm.prints("squeue", {"jobs": odd})
    beside.clock.advance(30_000)
    beside.runner.one_pass()
    assert beside.runner.status.condition == "observing", beside.runner.status.message
    assert "train-2" in {one.job for one in beside.observer.summary.starts}
    assert any("left out" in doubt for doubt in beside.observer.summary.doubts)


@pytest.mark.parametrize("step_s", [-7_200, 7_200])
def test_a_clock_that_is_set_moves_what_was_noted_with_it(beside: Beside, step_s: int) -> None:
    """Both clocks are those of one machine: what was two minutes ahead of the start stays two minutes ahead of it."""
    runs = FakeJob(1, "RUNNING", "n1", started=1)
    for _ in range(3):
        beside.look(runs, FakeJob(2))
    beside.clock.set_by = step_s * 1000
    beside.slurm._begin += step_s
    beside.look(runs, FakeJob(2))
    found = beside.look(runs, FakeJob(2, "RUNNING", "n2", started=beside.at() + 30))
    assert of(found, "train-2").ahead_ms == 120_000
    assert found.use.measured_ms == 120_000
    for job in beside.on_disk().values():
        assert all(one.ended_at is None or one.ended_at >= one.started_at for one in job.attempts)


def test_a_new_process_goes_on_with_what_was_written(beside: Beside) -> None:
    runs = FakeJob(1, "RUNNING", "n1", started=1)
    for _ in range(3):
        beside.look(runs, FakeJob(2))
    beside.observer.save()
    beside.begin()
    found = beside.look(runs, FakeJob(2, "RUNNING", "n2", started=beside.at() + 30))
    assert (of(found, "train-2").ahead_ms, found.looks) == (90_000, 4)
    beside.observer.save()
    beside.memory.comparison.write_text("{")
    with pytest.raises(TraceUnreadableError, match=r"comparison\.json"):
        beside.begin()


def test_a_result_is_said_at_the_end(beside: Beside) -> None:
    with capture_logs() as logged:
        beside.look(FakeJob(1, minutes=None))
        beside.look(FakeJob(1, minutes=None))
        beside.runner.stop()
        beside.runner.run()
    result = next(line for line in logged if line["event"] == "observed-beside-slurm")
    assert (result["would_start"], result["in_use"], result["in_use_by_plans"]) == (1, "0.0%", "50.0%")
    assert len([line for line in logged if line["event"] == "not-known"]) == 1, "once for as long as it is so"
    assert beside.memory.comparison.exists()
