"""A replay in a process of its own says the same as one here, and one that dies or takes too long is no answer."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection
from time import sleep

import msgspec
import pytest

from reconciler.control import replay_process
from reconciler.control.replay import replay
from reconciler.control.replay_process import ReplayFailedError, replay_apart
from reconciler.protocols.rounds import RoundRecord
from solver.milp.highs import optimise
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName
from solver.round.solve import solve
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, POLICY, spec


@pytest.fixture(scope="module")
def record() -> RoundRecord:
    snapshot = snapshot_of(NOW, NODES, (Job(JobName("starts"), NOW, spec(2), "ada"),))
    return RoundRecord(7, NOW, "abc", snapshot, POLICY, solve(snapshot, POLICY, optimise), {})


def dies(_: Connection) -> None:
    os._exit(9)


def hangs(_: Connection) -> None:
    sleep(600)


def test_it_says_the_same(record: RoundRecord) -> None:
    assert replay_apart(record) == replay(record, optimise)


def test_a_recording_that_cannot_be_read_is_said(record: RoundRecord) -> None:
    with pytest.raises(ReplayFailedError, match="the recorded answer can't be read"):
        replay_apart(msgspec.structs.replace(record, solution="nonsense"))


def test_one_that_dies_is_said(monkeypatch: pytest.MonkeyPatch, record: RoundRecord) -> None:
    monkeypatch.setattr(replay_process, "_answer", dies)
    with pytest.raises(ReplayFailedError, match="exit code 9"):
        replay_apart(record)


def test_one_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, record: RoundRecord) -> None:
    monkeypatch.setattr(replay_process, "_answer", hangs)
    with pytest.raises(ReplayFailedError, match="longer than 1 s"):
        replay_apart(record, 1.0)
