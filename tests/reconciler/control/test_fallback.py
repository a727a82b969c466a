"""A defect of the solver costs how good a round is, and not the round."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from reconciler.control.control import Solve, Solved
from reconciler.control.ledger_site import one_pass
from reconciler.control.metrics import Metrics
from reconciler.control.passes import NoPlanError
from reconciler.control.replay import replay
from reconciler.control.runner import LoopStatus, Pace, Runner
from reconciler.server.reporter import Reporter
from reconciler.server.services import shortfall_conditions
from solver.milp.highs import optimise
from solver.model.snapshot import Snapshot
from solver.plan.violation import Violation
from solver.policy.policy import Policy
from solver.round.solve import solve
from tests.reconciler.control.plane import Site
from tests.reconciler.control.test_runner import plane_of, running, until


def failing(snapshot: Snapshot, policy: Policy) -> Solved:
    raise KeyError("a column that is not there")


def stale(snapshot: Snapshot, policy: Policy) -> Solved:
    plan = solve(snapshot, policy, None)
    return Solved.at_once(msgspec.structs.replace(plan, snapshot="sha256:other"))


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (failing, "the solver failed: KeyError: 'a column that is not there' (test_fallback.py:"),
        (stale, "the plan breaks rules and was not acted on: stale sha256:other"),
    ],
)
def test_where_the_first_plan_will_not_do_the_greedy_one_is_acted_on_and_replayed(
    site: Site, broken: Solve, fault: str
) -> None:
    name = site.submit("job", ("sleep", "forever"))
    done = one_pass(replace(site.only_plane, solve=broken))
    assert done.fault.startswith(fault)
    assert done.fault.endswith("; the greedy answer stands")
    assert site.state(name) == "starting"
    assert done.round is not None
    replayed = replay(site.store.history.round(done.round), optimise)
    assert replayed.identical
    assert replayed.from_recorded_answer


def test_who_runs_it_is_told_and_it_is_counted(site: Site) -> None:
    done = one_pass(replace(site.only_plane, solve=failing))
    with capture_logs() as lines:
        metrics = Metrics()
        reporter = Reporter(metrics, structlog.get_logger(), site.clock)
        for status in (LoopStatus("leading", done.fault, done), LoopStatus("leading", "", site.one_pass())):
            reporter.hear(status)
    assert [(line["log_level"], line.get("message", "")) for line in lines] == [("warning", done.fault), ("info", "")]
    assert b"quorate_round_faults_total 1.0" in metrics.text()


def test_what_a_plan_falls_short_of_is_told_once_and_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Violation("idle", "job", "waits beside free GPUs")
    monkeypatch.setattr("reconciler.control.fallback.findings", lambda *_: (idle,))
    done = one_pass(site.only_plane)
    assert (done.shortfalls, done.fault) == ((idle,), "")
    metrics = Metrics()
    with capture_logs() as lines:
        reporter = Reporter(metrics, structlog.get_logger(), site.clock)
        for _ in range(2):
            reporter.hear(LoopStatus("leading", "", done))
    told = [line for line in lines if line["event"] == "plan-falls-short"]
    assert [(line["kind"], line["job"], line["log_level"]) for line in told] == [("idle", "job", "warning")]
    assert b'quorate_round_shortfalls{kind="idle"} 1.0' in metrics.text()
    assert b'quorate_round_shortfalls{kind="needless"} 0.0' in metrics.text()
    (condition,) = shortfall_conditions(done.shortfalls)
    assert (condition.type, condition.reason, condition.message) == (
        "FallsShort",
        "PlanNotMaximal",
        "job waits beside free GPUs",
    )
    assert not list(shortfall_conditions(()))


def test_a_defect_of_that_question_costs_no_plan(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a queue that is not there")

    monkeypatch.setattr("reconciler.control.fallback.findings", broken)
    name = site.submit("job", ("sleep", "forever"))
    done = one_pass(site.only_plane)
    assert site.state(name) == "starting"
    assert done.fault.startswith("what the plan falls short of could not be told: KeyError")


def test_where_nothing_can_be_decided_the_loop_says_so_and_goes_on_trying(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = site.submit("job", ("sleep", "forever"))
    plane = replace(plane_of(site), solve=failing)
    monkeypatch.setattr("reconciler.control.fallback.without_program", failing)
    with pytest.raises(NoPlanError, match="a column that is not there"):
        one_pass(plane)
    runner = Runner(plane, Pace(poll_s=0.01))
    with running(runner):
        until(lambda: runner.status.condition == "solver-failed")
        assert site.state(name) == "queued"
        monkeypatch.undo()
        until(lambda: runner.status.condition == "leading")
        assert "the greedy answer stands" in runner.status.message
