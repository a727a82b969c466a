"""When agents beat and come again: spread, so that many don't act as one."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.backends.baremetal.merge import LEASE
from reconciler.backends.baremetal.wire import Declare, Done, Lead, Refused, Welcome, meeting_port
from reconciler.model.clock import SystemClock
from reconciler.node.agent.folder import AgentFolder, AgentFolderError, Epochs
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.node.agent.pace import AgentPace
from reconciler.node.local.gpus import DeclaredGpus
from reconciler.protocols.backend import Cursor, Epoch
from solver.model.workload import JobName
from tests.contracts.simulated_worlds import NODES

PACE = AgentPace()
drawn = st.floats(0, 1, exclude_max=True)


@given(drawn)
def test_a_node_beats_several_times_within_its_lease(number: float) -> None:
    assert 3 * PACE.until_beat_s(number) <= LEASE.seconds


@given(st.integers(0, 10_000), drawn)
def test_no_rest_is_longer_than_the_longest(failures: int, number: float) -> None:
    assert 0 <= PACE.rest_s(failures, number) <= PACE.rest_max_s


def test_agents_that_lose_a_control_plane_at_once_come_again_spread_out() -> None:
    rests = sorted(PACE.rest_s(8, number / 1_000) for number in range(1_000))
    assert all(later - sooner <= 2 * PACE.rest_max_s / 1_000 for sooner, later in pairwise(rests))


@given(st.text(min_size=1), st.integers(1, 1_000))
def test_gangs_meet_below_the_ports_of_outgoing_connections(job: str, attempt: int) -> None:
    assert 20_000 <= meeting_port(JobName(job), attempt) < 30_000


def test_the_next_attempt_meets_elsewhere() -> None:
    assert len({meeting_port(JobName("job"), attempt) for attempt in range(1, 101)}) > 95


def test_a_second_agent_is_kept_out_of_a_folder(tmp_path: Path) -> None:
    folder = AgentFolder(tmp_path / "state")
    refused = pytest.raises(AgentFolderError, match="another agent uses this folder")
    with folder.locked(), refused, folder.locked():
        raise AssertionError("both were let in")
    with folder.locked():
        pass


def test_an_agent_that_starts_while_nobody_leads_knows_its_node_and_the_newest_epoch(tmp_path: Path) -> None:
    folder = AgentFolder(tmp_path)
    first = OrderHandler(NODES[0].name, folder, SystemClock(), gpus=partial(DeclaredGpus, real_gpus=tmp_path / "none"))
    assert first.changes(Cursor(0)).nodes == (), "nobody has said what it is"
    first.note(Welcome(Epoch(6)))
    first.note(Declare(NODES[0]))
    again = OrderHandler(NODES[0].name, folder, SystemClock(), gpus=partial(DeclaredGpus, real_gpus=tmp_path / "none"))
    assert again.changes(Cursor(0)).nodes == (NODES[0],)
    assert again.do(Lead(1, Epoch(5))) == Refused(1, Epoch(6))
    assert again.do(Lead(2, Epoch(7))) == Done(2)
    again.note(Welcome(Epoch(3)))
    assert Epochs(folder.tasks).seen() == 7


def test_an_agent_does_not_pass_for_another_node(tmp_path: Path) -> None:
    deeds = OrderHandler(
        NODES[0].name, AgentFolder(tmp_path), SystemClock(), gpus=partial(DeclaredGpus, real_gpus=tmp_path / "none")
    )
    deeds.note(Declare(NODES[1]))
    assert deeds.changes(Cursor(0)).nodes == ()
