"""Rounds decided in a process of their own are the same rounds; one that fails, hangs or lies costs its leader nothing but time."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from hack.rounds.cases import with_limit
from hack.rounds.onward import Onward
from hack.rounds.world import World
from reconciler.control.control import Solve
from reconciler.control.fallback import DECIDED_HERE, CheckedPlan, conclude, decide
from reconciler.control.ledger_site import one_pass
from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.optimiser.child_process import ChildProcess
from reconciler.control.passes import Laps, Pass
from reconciler.control.queue_use import queue_uses
from reconciler.control.recording import solver_with
from reconciler.control.replay import replay
from reconciler.control.round_worker import RoundWorker, parent
from reconciler.control.round_worker.messages import RoundQuestion, frame_of
from reconciler.model.clock import SystemClock
from reconciler.protocols.rounds import RoundRecord
from solver.milp.highs import optimise
from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.snapshot import Snapshot
from solver.policy.policy import Policy
from tests.reconciler.control.plane import Site
from tests.reconciler.control.test_runner import until

Working = Callable[..., RoundWorker]


def worker_that(behaviour: str, well: int = 0) -> tuple[str, ...]:
    return sys.executable, "-m", "tests.reconciler.control.round_worker.misbehaving", behaviour, str(well)


@pytest.fixture
def working() -> Iterator[Working]:
    """Workers beside an optimiser that has nothing better than it is given."""
    fake = sys.executable, "-m", "tests.reconciler.control.optimiser.misbehaving", "good", "0"
    optimiser, opened = KillableOptimiser(fake), list[RoundWorker]()

    def make(
        behaviour: str = "good",
        well: int = 0,
        from_gpus: int = 0,
        report: Callable[[str], None] = lambda _: None,
        **limits: float,
    ) -> RoundWorker:
        command = worker_that(behaviour, well)
        opened.append(RoundWorker(optimiser, SystemClock(), from_gpus, command, report, **limits))
        return opened[-1]

    yield make
    for worker in opened:
        worker.close()
    optimiser.close()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes that were started as workers."""
    pids, begin = list[int](), ChildProcess.begin

    def noted(command: tuple[str, ...]) -> ChildProcess:
        made = begin(command)
        if "round_worker" in command[2]:
            pids.append(made.process.pid)
        return made

    monkeypatch.setattr(ChildProcess, "begin", noted)
    return pids


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[RoundQuestion]:
    """What workers were asked."""
    asked = list[RoundQuestion]()

    def noted(question: RoundQuestion) -> bytes:
        asked.append(question)
        return frame_of(question)

    monkeypatch.setattr(parent, "frame_of", noted)
    return asked


def passed(site: Site, worker: RoundWorker) -> Pass:
    site.clock.advance(1_000)
    return one_pass(replace(site.only_plane, solve=worker, prepare=worker.prepare, ask=worker.ask))


def whole_round(solve: Solve, snapshot: Snapshot, policy: Policy) -> CheckedPlan:
    laps = Laps(SystemClock())
    return conclude(decide(solve, snapshot, policy, laps), snapshot, policy, laps)


def rounds_of(world: World, number: int, solve: Solve, policies: Callable[[int], Policy]) -> Iterator[RoundRecord]:
    """Rounds of a cluster in which what was decided happens, jobs end and others come."""
    snapshot = world.snapshot
    onward = Onward(world.workload(random.Random(2), "later"), random.Random(3), 0.08)
    for at in range(number):
        plan, solution, fault, *_ = whole_round(solve, snapshot, policies(at))
        assert fault == ""
        yield RoundRecord(at + 1, snapshot.time, "revision", snapshot, policies(at), plan, {}, solution)
        snapshot = onward.after(snapshot, plan)


def test_it_says_what_queues_hold_so_that_it_is_not_worked_out_again(working: Working) -> None:
    world, laps = World(256, pending=60, full=0.8), Laps(SystemClock())
    deed = decide(working(), world.snapshot, world.policy, laps)
    assert deed.solved.uses is not None
    conclude(deed, world.snapshot, world.policy, laps)
    assert deed.solved.uses.result(60) == tuple(use for _, use in queue_uses(world.snapshot, world.policy))


def test_where_it_is_lost_nothing_is_waited_for(working: Working) -> None:
    world = World(256, pending=60, full=0.8)
    solved = working("killed-after-deed")(world.snapshot, world.policy)
    assert solved.uses is not None
    assert solved.uses.result(60) is None


def test_a_round_that_was_asked_for_ahead_is_not_asked_for_again(
    working: Working, questions: list[RoundQuestion]
) -> None:
    world, worker = World(256, pending=60, full=0.8), working()
    snapshot, policy = world.snapshot, world.policy
    for _ in range(2):
        worker.ask(snapshot, policy)
        until(lambda: bool(questions))
        assert whole_round(worker, snapshot, policy).fault == ""
        assert len(questions) == 1
        questions.clear()
    worker.ask(snapshot, policy)
    later = msgspec.structs.replace(snapshot, time=Instant(snapshot.time + 1_000))
    assert whole_round(worker, later, policy).plan.snapshot == later.digest
    assert len(questions) == 2


def test_a_worker_that_dies_in_a_round_that_is_not_wanted_any_more_is_told(working: Working) -> None:
    world, told = World(256, pending=60, full=0.8), list[str]()
    worker = working("killed", report=told.append)
    worker.ask(world.snapshot, world.policy)
    later = msgspec.structs.replace(world.snapshot, time=Instant(world.snapshot.time + 1_000))
    whole_round(worker, later, world.policy)
    assert [line for line in told if "not wanted any more; another takes its place" in line]


def test_what_changed_gives_the_same_plans_as_whole_snapshots(working: Working, questions: list[RoundQuestion]) -> None:
    world = World(256, pending=60, full=0.8)
    before, after = with_limit(world.policy, 600), with_limit(world.policy, 500)
    here, there = solver_with(None), working()
    in_parts = list(rounds_of(world, 6, there, lambda at: before if at < 3 else after))
    assert [encode(record.plan) for record in in_parts] == [
        encode(here(record.snapshot, record.policy).conclude().plan) for record in in_parts
    ]
    assert [question.snapshot is not None for question in questions] == [True, *[False] * 5]
    assert [question.policy for question in questions] == [before, None, None, after, None, None]
    assert all(0 < len(question.patch.jobs) < len(world.snapshot.jobs) / 2 for question in questions if question.patch)


@pytest.mark.thorough
def test_what_the_optimiser_was_cut_short_in_replays(working: Working) -> None:
    world = World(256, pending=60, full=0.8)
    policy = with_limit(world.policy, 600)
    records = list(rounds_of(world, 8, working("hurried"), lambda _: policy))
    assert len({record.solution == "" for record in records}) == 2, "some answers are recorded, some need not be"
    replayed = [replay(record, optimise) for record in records]
    assert [known.difference for known in replayed] == [""] * len(records)
    assert all(known.identical for known in replayed)


def test_the_shipped_worker_asks_the_program_and_says_what_it_fell_short_of() -> None:
    world = World(64, pending=20, full=0.8)
    policy, snapshot = with_limit(world.policy, 600), world.snapshot
    with KillableOptimiser() as optimiser, RoundWorker(optimiser, from_gpus=0) as worker:
        there = whole_round(worker, snapshot, policy)
        here = whole_round(solver_with(optimiser), snapshot, policy)
    assert encode(there.plan) == encode(here.plan)
    assert encode(there.plan) != encode(whole_round(solver_with(None), snapshot, policy).plan)
    assert (there.shortfalls, there.fault, there.is_whole) == (here.shortfalls, "", True)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("killed", "ended in the middle of a conversation"),
        pytest.param("killed-in-check", "ended in the middle of a conversation", marks=pytest.mark.thorough),
        ("stopped", "gave no answer"),
        pytest.param("endless", "gave no answer", marks=pytest.mark.thorough),
        ("garbage", "did not send a well-formed answer"),
        ("other-snapshot", "answered to snapshot sha256:other, not"),
        pytest.param("other-policy", "answered under policy sha256:other, not", marks=pytest.mark.thorough),
        pytest.param("unknown-job", "answered with a step of nobody, which is no job", marks=pytest.mark.thorough),
        ("out-of-turn", "answered with a RoundJudgement where a RoundPart was due"),
    ],
)
def test_a_round_that_its_worker_fails_is_decided_in_this_process(
    site: Site, working: Working, begun: list[int], questions: list[RoundQuestion], behaviour: str, said: str
) -> None:
    limits = {"stopped": {"silent_s": 3.0}, "endless": {"round_s_max": 4.0}}.get(behaviour, {})
    worker = working(behaviour, well=1, **limits)
    names = [site.submit("first", ("sleep", "forever"))]
    assert passed(site, worker).fault == ""
    names.append(site.submit("second", ("sleep", "forever")))
    failed = passed(site, worker)
    assert failed.fault.startswith(f"the round worker {said}")
    assert failed.fault.endswith(DECIDED_HERE)
    assert site.state("second") == "starting"
    assert site.store.history.round(failed.round or 0).is_whole
    site.submit("third", ("sleep", "forever"))
    assert passed(site, worker).fault == ""
    assert site.state("third") == "starting"
    assert len(begun) == 2, "the next round has a worker of its own"
    assert [question.snapshot is None for question in questions] == [False, True, False]


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("killed-after-deed", "the round worker ended in the middle of a conversation"),
        pytest.param(
            "does-less",
            "the round worker answered with a plan that does something else than its deed",
            marks=pytest.mark.thorough,
        ),
        ("says-wrong", "S1 job: is where another is"),
    ],
)
def test_what_was_done_is_done_and_the_next_round_says_it_all(
    site: Site, working: Working, behaviour: str, said: str
) -> None:
    worker = working(behaviour)
    site.submit("first", ("sleep", "forever"))
    failed = passed(site, worker)
    assert failed.fault == f"the round was acted on, and what it says of it can't be kept: {said}"
    assert site.state("first") == "starting"
    assert not site.store.history.round(failed.round or 0).is_whole
    site.submit("second", ("sleep", "forever"))
    again = passed(site, worker)
    if behaviour == "says-wrong":
        assert again.fault.endswith(said), "the worker is well, and the solver is not"
    else:
        assert again.fault == f"the round worker was lost, and rests; {DECIDED_HERE}"
        assert site.store.history.round(again.round or 0).is_whole


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("fails", "the solver failed: KeyError: 'a column that is not there' (misbehaving.py:"),
        ("breaks-rules", "the plan breaks rules and was not acted on: S1 job: is where another is"),
    ],
)
def test_where_the_solver_fails_in_the_worker_the_greedy_answer_is_acted_on(
    site: Site, working: Working, begun: list[int], behaviour: str, said: str
) -> None:
    worker = working(behaviour, well=1)
    assert passed(site, worker).fault == ""
    site.submit("job", ("sleep", "forever"))
    for _ in range(2):
        failed = passed(site, worker)
        assert failed.fault.startswith(said)
        assert failed.fault.endswith("; the greedy answer stands")
    assert site.state("job") == "running"
    assert len(begun) == 1, "a worker that does as it is told is kept"


def test_a_worker_that_can_not_live_is_tried_ever_less_often(site: Site, working: Working, begun: list[int]) -> None:
    worker = working("killed")
    faults = [passed(site, worker).fault for _ in range(12)]
    assert all(fault.endswith(DECIDED_HERE) for fault in faults)
    tried = [number for number, fault in enumerate(faults) if "ended in the middle" in fault]
    assert tried == [0, 1, 4, 11]
    assert len(begun) == len(tried)


def test_a_worker_that_can_not_be_started_is_told(site: Site) -> None:
    with KillableOptimiser() as optimiser, RoundWorker(optimiser, from_gpus=0, command=("/no/such/worker",)) as worker:
        fault = passed(site, worker).fault
    assert "/no/such/worker" in fault
    assert fault.endswith(DECIDED_HERE)


def test_small_clusters_have_no_worker_any_more(site: Site, working: Working, begun: list[int]) -> None:
    gpus = sum(len(node.gpus) for node in site.declared)
    worker = working(from_gpus=gpus)
    assert passed(site, worker).fault == ""
    (pid,) = begun
    site.declared = site.declared[1:]
    assert passed(site, worker).fault == ""
    until(lambda: not Path(f"/proc/{pid}").exists())
    site.submit("job", ("sleep", "forever"))
    assert passed(site, worker).fault == ""
    assert site.state("job") == "starting"
    assert begun == [pid]


def test_the_worker_is_started_before_a_round_needs_it(site: Site, working: Working, begun: list[int]) -> None:
    worker = working()
    worker.prepare(site.declared)
    until(lambda: len(begun) == 1)
    assert passed(site, worker).fault == ""
    assert len(begun) == 1


def test_a_worker_that_takes_long_says_that_it_lives(site: Site, working: Working, begun: list[int]) -> None:
    worker = working("slow", silent_s=4.0)
    assert passed(site, worker).fault == ""
    assert len(begun) == 1


def test_when_it_ends_is_for_the_control_plane_to_say(site: Site, working: Working, begun: list[int]) -> None:
    worker = working()
    assert passed(site, worker).fault == ""
    (pid,) = begun
    assert os.getpgid(pid) != os.getpgid(0), "Ctrl-C reaches all processes of a group"
    os.kill(pid, signal.SIGTERM)
    assert passed(site, worker).fault == ""
    assert begun == [pid]


def test_a_worker_ends_with_its_control_plane_in_the_middle_of_a_round(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from hack.rounds.world import World\n"
        "from tests.reconciler.control.round_worker.test_round_worker import KillableOptimiser, RoundWorker, worker_that\n"
        "worker = RoundWorker(KillableOptimiser(), from_gpus=0, command=worker_that('endless'))\n"
        "world = World(64, 10)\n"
        "worker.prepare(world.snapshot.nodes)\n"
        "worker._child.submit(lambda: print(worker._child.begun().process.pid, flush=True))\n"
        "worker(world.snapshot, world.policy)\n"
    )
    with subprocess.Popen((sys.executable, "-c", script), stdout=subprocess.PIPE, text=True) as plane:
        assert plane.stdout is not None
        pid = int(plane.stdout.readline())
        plane.kill()
    until(lambda: not _lives(pid))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One whose parent is gone may wait to be reaped.
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
