"""What training scripts call, in real processes: four ranks that save, are told to save, die, and go on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from quorate import checkpoint
from reconciler.lifecycle.checkpoints.manifest import StepFolder
from reconciler.lifecycle.checkpoints.publication import manifest_of
from reconciler.lifecycle.checkpoints.storage import Storage
from reconciler.lifecycle.checkpoints.verification import verify
from tests.house.tracked import ROOT
from tests.reconciler.lifecycle.checkpoints.storages import JOB, hand_in, memory_url, publish, task

RANKS = 4

TRAINING = """
import os, pathlib, sys
from quorate import checkpoint
rank, last, dies_at = int(os.environ["RANK"]), int(sys.argv[1]), int(sys.argv[2])
found = checkpoint.latest()
state, first = 0, 1
if found:
    state, first = int(pathlib.Path(found.shard("state")).read_text()), found.step + 1
for step in range(first, last + 1):
    state = (state * 31 + step + rank) % 1_000_003
    checkpoint.progress(step, 2.5)
    if step == dies_at and rank == 3:
        os._exit(9)
    if step % 10 == 0:
        path = pathlib.Path(sys.argv[3]) / f"state-{rank}"
        path.write_text(str(state))
        checkpoint.commit(step, {"state": path})
print(state)
"""
"""Each rank's state depends on its own past alone, so they need not talk."""


def ranks(
    tmp_path: Path,
    last: int,
    dies_at: int = 0,
    attempt: int = 1,
    python: str = sys.executable,
    told_more: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Run four ranks to their ends; what each printed, "" of one that died."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    running = []
    for rank in range(RANKS):
        told = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "QUORATE_JOB": JOB,
            "QUORATE_ATTEMPT": str(attempt),
            "QUORATE_GROUP": "worker",
            "QUORATE_INDEX": str(rank),
            "RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "QUORATE_CHECKPOINT_URL": f"file://{tmp_path / JOB}",
            "QUORATE_PROGRESS_FILE": str(tmp_path / f"progress-{rank}"),
            **told_more,
        }
        command = [python, str(script), str(last), str(dies_at), str(tmp_path)]
        running.append(subprocess.Popen(command, env=told, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0].strip() for process in running]
    assert [process.returncode for process in running] == [9 if not output else 0 for output in outputs]
    return outputs


def resumed_from(tmp_path: Path, step: int) -> dict[str, str]:
    return {"QUORATE_RESUME_URL": f"file://{tmp_path / JOB}/{StepFolder(1, step)}", "QUORATE_RESUME_STEP": str(step)}


def test_four_ranks_that_go_on_end_as_if_nothing_had_happened(tmp_path: Path) -> None:
    (tmp_path / "undisturbed").mkdir()
    expected = ranks(tmp_path / "undisturbed", 50)
    died = ranks(tmp_path, 50, dies_at=35)
    assert died == [*expected[:3], ""]
    url = f"file://{tmp_path / JOB}"
    assert manifest_of(Storage(url), JOB, StepFolder(1, 40), RANKS) is None
    manifest = publish(url, 30)
    assert [part.rank for part in manifest.parts] == list(range(RANKS))
    assert verify(Storage(url), JOB, StepFolder(1, 30), manifest.digest) == ()
    assert ranks(tmp_path, 50, attempt=2, told_more=resumed_from(tmp_path, 30)) == expected
    progress = json.loads((tmp_path / "progress-3").read_text())
    assert progress == {"step": 50, "rate": 2.5}


def test_it_runs_on_python_3_9(tmp_path: Path) -> None:
    """Images for training are old."""
    python = shutil.which("python3.9")
    if python is None or subprocess.run([python, "--version"], capture_output=True).returncode:
        pytest.skip("no python3.9 on this machine")
    (tmp_path / "new").mkdir()
    assert ranks(tmp_path, 20, python=python) == ranks(tmp_path / "new", 20)


def test_it_imports_nothing_but_the_standard_library() -> None:
    code = "import sys; before = set(sys.modules); from quorate import checkpoint; print(*(set(sys.modules) - before))"
    ran = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    tops = {name.partition(".")[0] for name in ran.stdout.split()}
    assert tops - {"quorate"} <= sys.stdlib_module_names


def test_without_quorate_a_script_runs_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("QUORATE_")]:
        monkeypatch.delenv(name)
    assert checkpoint.should_checkpoint() is False
    checkpoint.commit(1, {"nothing": tmp_path / "that is not there"})
    checkpoint.progress(1, 1.0)
    assert (checkpoint.latest(), checkpoint.folder(1), list(tmp_path.iterdir())) == (None, "", [])


def request(path: Path, number: int, reason: str = "checkpoint") -> None:
    path.write_text(json.dumps({"number": number, "reason": reason, "until": "2026-03-01T12:00:00Z"}))


def test_a_request_is_open_until_it_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint._Own, "answered", 0)
    url, asked = f"file://{tmp_path / JOB}", tmp_path / "request.json"
    with task(url, QUORATE_REQUEST_FILE=str(asked)):
        assert checkpoint.should_checkpoint() is False
        request(asked, 1, "dump")
        assert checkpoint.should_checkpoint() is False
        request(asked, 2)
        assert checkpoint.should_checkpoint() is True
        (tmp_path / "w").write_bytes(b"w")
        checkpoint.commit(7, [tmp_path / "w"])
        assert checkpoint.should_checkpoint() is False
        checkpoint.commit(8, [tmp_path / "w"])
        request(asked, 3, "time-limit")
        assert checkpoint.should_checkpoint() is True
    assert publish(url, 7).answers == 2
    assert publish(url, 8).answers == 2, "where step 7 lacks the part of another task, this one is the answer"


def test_the_interval_counts_from_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with task(f"file://{tmp_path / JOB}", QUORATE_CHECKPOINT_INTERVAL_S="60"):
        now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: now_s)
        monkeypatch.setattr(checkpoint._Own, "saved_at_s", now_s - 61)
        assert checkpoint.should_checkpoint() is True
        checkpoint.commit(1, [])
        assert checkpoint.should_checkpoint() is False
        now_s += 60
        assert checkpoint.should_checkpoint() is True


def test_shards_that_lie_in_the_folder_are_not_copied(tmp_path: Path) -> None:
    url = f"file://{tmp_path / JOB}"
    with task(url):
        own = Path(checkpoint.folder(5)) / "worker.0"
        own.mkdir(parents=True)
        (own / "weights").write_bytes(b"12345")
        before = (own / "weights").stat().st_ino
        checkpoint.commit(5, [own / "weights"])
    assert (own / "weights").stat().st_ino == before
    ((shard,),) = [part.shards for part in publish(url, 5).parts]
    assert (shard.size, shard.sha256) == (5, hashlib.sha256(b"12345").hexdigest())


def test_a_published_checkpoint_is_never_written_again(tmp_path: Path) -> None:
    url = f"file://{tmp_path / JOB}"
    hand_in(url, tmp_path, 5, {"weights": b"first"})
    digest = publish(url, 5).digest
    hand_in(url, tmp_path, 5, {"weights": b"other"})
    assert verify(Storage(url), JOB, StepFolder(1, 5), digest) == ()


@pytest.mark.parametrize("name", ["", "..", "a/b", "../x", "a\\b", "a\nb"])
def test_names_of_shards_that_are_paths_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "w").write_bytes(b"w")
    with task(f"file://{tmp_path / JOB}"), pytest.raises(ValueError, match="can't have the name"):
        checkpoint.commit(1, {name: tmp_path / "w"})
    assert not list((tmp_path).rglob("parts/*"))


def test_files_of_one_name_need_names(tmp_path: Path) -> None:
    with task(f"file://{tmp_path / JOB}"), pytest.raises(ValueError, match="same file name"):
        checkpoint.commit(1, [tmp_path / "a" / "w", tmp_path / "b" / "w"])


def test_a_shard_that_is_not_there_hands_in_nothing(tmp_path: Path) -> None:
    with task(f"file://{tmp_path / JOB}"), pytest.raises(FileNotFoundError):
        checkpoint.commit(1, [tmp_path / "w"])
    assert not list((tmp_path).rglob("parts/*"))


def test_an_object_store_is_the_same(tmp_path: Path) -> None:
    url = memory_url()
    hand_in(url, tmp_path, 5, {"weights": b"12345"})
    publish(url, 5)
    with task(url, QUORATE_RESUME_URL=f"{url}/{StepFolder(1, 5)}"):
        found = checkpoint.latest()
        assert found is not None
        assert (found.step, found.shard("weights")) == (5, f"{url}/{StepFolder(1, 5)}/worker.0/weights")
        with pytest.raises(KeyError, match="Its shards: weights"):
            found.shard("optimiser")
        with pytest.raises(KeyError, match=r"tasks: worker\.0"):
            found.shard("weights", "worker.1")


def test_without_fsspec_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with task("s3://bucket/x"), pytest.raises(ImportError, match=r"pip install fsspec\[s3\]"):
        checkpoint.commit(1, [])
