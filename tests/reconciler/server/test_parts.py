"""The parts of the server's process, one by one."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Event as Signal

import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.alerts.desk import AlertDesk
from reconciler.alerts.sender import Sender
from reconciler.api.git_services import GitServices, Planning
from reconciler.api.payloads import SUSPENDED
from reconciler.api.problems import NotReadyError
from reconciler.control.control import NoPolicyError
from reconciler.control.metrics import Metrics
from reconciler.control.runner import LoopStatus, Runner
from reconciler.control.use_summary import KnownUse, LatestUse
from reconciler.gitops.source.archive import RevisionArchive
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.model.clock import VirtualClock
from reconciler.model.git_record import Suspension
from reconciler.node.local.terms import Terms
from reconciler.protocols.history import Event
from reconciler.server.crew import Crew
from reconciler.server.folder import FolderUnusableError, StateFolder
from reconciler.server.history_log import LoggedHistory
from reconciler.server.reporter import Reporter
from reconciler.server.services import services_of
from reconciler.store.store import open_store
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec, QueueName
from tests.reconciler.control.plane import site_at


def test_the_first_failure_ends_the_wait_and_is_raised() -> None:
    crew, told = Crew(), Signal()

    def fail() -> None:
        raise ValueError("why")

    def steady() -> None:
        told.wait(60)

    crew.start("steady", steady)
    crew.start("failing", fail)
    crew.wait(lambda: True, look_every_s=60)
    told.set()
    with pytest.raises(ValueError, match="why"):
        crew.join()


def test_a_crew_is_dismissed_or_found_unwell() -> None:
    crew = Crew()
    crew.dismiss()
    crew.wait(lambda: True, look_every_s=60)
    crew.wait(lambda: False, look_every_s=60)
    crew.join()


def test_one_state_folder_has_one_control_plane(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    with folder.locked():
        with (
            pytest.raises(FolderUnusableError, match=rf"another control plane \(process {os.getpid()}\)"),
            folder.locked(),
        ):
            pass
        assert folder.path.stat().st_mode & 0o777 == 0o700
    with folder.locked():
        pass


def test_a_state_folder_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderUnusableError, match="--state"), StateFolder(tmp_path / "file" / "state").locked():
        pass


def test_events_are_logged_without_the_output_of_tasks(tmp_path: Path) -> None:
    store = open_store(tmp_path / "quorate.db")
    with capture_logs() as lines:
        history = LoggedHistory(store.history, structlog.get_logger())
        history.record_event(Event(Instant(1), "failed", "job", "exit code 3\nthe task's password", "control-plane"))
    store.close()
    assert [(line["event"], line["subject"], line["cause"]) for line in lines] == [("failed", "job", "exit code 3")]


def test_what_the_api_is_told_before_the_first_round(tmp_path: Path) -> None:
    with site_at(tmp_path / "quorate.db") as site:
        runner = Runner(site.only_plane)
        standing = StandingPolicy(GitMirror(tmp_path / "mirror", str(tmp_path)), "main")
        desk = AlertDesk(site.store.alerts, Sender(tmp_path, site.clock))
        planning = Planning(site.store.plans, lambda: None, standing.current)
        following = GitServices(
            "main",
            site.store.following,
            standing.status,
            lambda: Instant(1),
            lambda: None,
            planning,
            RevisionArchive(tmp_path / "mirror"),
        )
        use = KnownUse(LatestUse(dict, site.clock), None)
        told = site.only_plane, standing, runner, Metrics(), desk, following
        services = services_of(*told, lambda: ("k" * 43,), Terms().unstartable, use=use)
        assert services.verdict(JobName("job")) is None
        with pytest.raises(NotReadyError, match="not decided a round yet: beginning"):
            services.snapshot()
        runner.status = LoopStatus("backend-unreachable", "It is away.")
        with pytest.raises(NotReadyError, match=r"not decided a round yet: It is away\.$"):
            services.snapshot()
        runner.status = LoopStatus("no-policy", "there is none.")
        with pytest.raises(NoPolicyError, match="no revision has been fetched yet"):
            services.snapshot()
        for asked in (services.policy, lambda: services.admit(JobSpec(QueueName("q"), ()))):
            with pytest.raises(NoPolicyError, match="no revision has been fetched yet"):
                asked()
        assert not services.ready()
        status = services.status()
        assert (status.epoch, status.holder, status.last_applied_revision) == (0, "only", "")
        assert {each.type: each.status for each in status.conditions} == {
            "Ready": False, "Reconciling": True, "Stalled": False, "Leading": False
        }  # fmt: skip
        begun = Suspension(author="ada", why="moving", at=site.clock.now())
        site.store.following.suspend(begun)
        (suspended,) = (each for each in services.status().conditions if each.type == SUSPENDED)
        assert (suspended.status, suspended.message) == (True, str(begun))


def test_the_loop_is_reported_when_its_condition_changes() -> None:
    with capture_logs() as lines:
        reporter = Reporter(Metrics(), structlog.get_logger(), VirtualClock())
        for condition in ("no-policy", "no-policy", "leading", "leading", "backend-unreachable"):
            reporter.hear(LoopStatus(condition, "" if condition == "leading" else "why"))
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("no-policy", "warning"),
        ("leading", "info"),
        ("backend-unreachable", "warning"),
    ]
