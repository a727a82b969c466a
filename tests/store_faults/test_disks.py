"""A disk that fails loses nothing that was acknowledged, and the judge notices one that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.store_faults.disks import FAULTS, DiskFault, NoCompilerError, build, judge, trial
from hack.store_faults.writer import SPEC, now
from reconciler.store.store import open_store
from solver.model.workload import JobName
from tests.drawn import DRAWING

SEEDS = range(40 if DRAWING.everything else 2)


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    try:
        return build(tmp_path)
    except NoCompilerError as error:
        pytest.skip(str(error))


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_acknowledged_outlives_the_disk_failing(fault: DiskFault, shim: Path) -> None:
    done = [trial(seed, fault, shim) for seed in SEEDS]
    assert [problem for one in done for problem in one.problems] == []
    assert sum(one.acknowledged for one in done) > 0


@pytest.mark.long
def test_a_disk_that_lies_is_found_out(shim: Path) -> None:
    done = [trial(seed, "power", shim, lying=True) for seed in range(10)]
    assert any(one.problems for one in done)


def test_the_judge_misses_what_was_acknowledged_and_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "quorate.db"
    store = open_store(path)
    store.jobs.submit(JobName("a"), SPEC, "ada", now(), "key")
    store.close()
    assert list(judge(path, ["open", "job a"])) == []
    said = ["job a", "job b", "claim a", "event a", "done a"]
    assert list(judge(path, said)) == ["lost: job b", "lost: claim a", "lost: event a", "lost: done a"]
