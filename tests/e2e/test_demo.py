"""The demo goes as it is told, and leaves nothing behind, whether it goes well or not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hack.demo.stage import DemoFailedError, Stage

KEY_LINES = (
    "submitted ranking-pretrain to product-ranking: 8 tasks, 64 GPUs",
    "ranking-pretrain: running",
    "language-eval: succeeded",
    "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7",
    "MASTER_ADDR=127.0.0.1",
    "MASTER_PORT=",
    "RANK=3",
    "WORLD_SIZE=8",
    "queue product-ranking holds 64 of max 64 H100-SXM5-80GB (policies/queues/product-ranking.yaml:",
    "main → more-for-ranking: 1 job starts now that would not; 1 job waits shorter",
    "queue org/product/product-ranking: max 64 → 96 H100-SXM5-80GB",
    "Start now, and would not",
    "ranking-finetune  org/product/product-ranking    32",
    "ranking-finetune: running",
    'Revert "Let ranking borrow up to 96 H100"',
    "queue product-ranking holds 96 of max 64 H100-SXM5-80GB (policies/queues/product-ranking.yaml:",
    "round 1: identical",
    "Nothing is left running, and the folder is gone.",
)


@pytest.mark.thorough
def test_the_demo_goes_as_it_is_told() -> None:
    done = subprocess.run([sys.executable, "-m", "hack.demo"], capture_output=True, text=True, timeout=1_200)
    assert done.returncode == 0, done.stdout + done.stderr
    place = 0
    for line in KEY_LINES:
        found = done.stdout.find(line, place)
        assert found >= 0, f"{line!r} is missing, or comes too early:\n{done.stdout}"
        place = found


@pytest.mark.long
def test_a_demo_that_fails_shows_the_log_and_leaves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage()
    with pytest.raises(DemoFailedError, match="should have said 'never said'"), stage:
        _play_and_fail(stage)
    assert '"event": "listening"' in capsys.readouterr().err
    assert stage.left_running() == []
    assert not stage.folder.exists()


def _play_and_fail(stage: Stage) -> None:
    stage.set_up()
    stage.run("git", "init", "--quiet", "--initial-branch=main", "policy")
    stage.run("git", "-C", "policy", "add", ".")
    stage.run("git", "-C", "policy", "commit", "--quiet", "-m", "first")
    stage.start_server("run", "--policies-repo", "policy", "--state", "state", "--listen", "127.0.0.1:0")
    stage.commit_in_force()
    stage.run("quorate", "submit", "-f", "jobs/ranking-finetune.yaml")
    stage.run("quorate", "wait", "ranking-finetune", "--for", "running")
    assert len(stage.left_running()) > 4, "four tasks and their supervisors, or the test shows nothing"
    stage.run("quorate", "status", expect="never said")
