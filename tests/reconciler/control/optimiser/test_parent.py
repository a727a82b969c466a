"""A solver that hangs, crashes, lies or eats memory costs one answer and never the parent."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from reconciler.control.optimiser import KillableOptimiser, child_process
from reconciler.control.optimiser.parent import HIGHS_CHILD
from reconciler.control.optimiser.wire import OptimiserQuestion, encode, read_frame, write_frame
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort, Objective, Program

# At most ten in each of two integer columns, at most 15 together; as much as possible.
PROGRAM = Program(
    lower=np.zeros(2),
    upper=np.full(2, 10.0),
    integer=np.ones(2, dtype=np.bool_),
    row_lower=np.array([-np.inf]),
    row_upper=np.array([15.0]),
    entry_row=np.array([0, 0]),
    entry_column=np.array([0, 1]),
    entry_value=np.ones(2),
    objectives=(Objective("most", True, np.array([0, 1]), np.ones(2)),),
)
START = np.array([3.0, 4.0])
HASTE = Effort(gap=0.0, time_limit_s=0.3, seed=0)
SOON = Effort(gap=0.0, time_limit_s=1.5, seed=0)
"""Long enough for a busy machine to send a question at all."""
PATIENCE = Effort(gap=0.0, time_limit_s=60.0, seed=0)


@pytest.fixture
def asked() -> Iterator[Callable[..., tuple[KillableOptimiser, list[str]]]]:
    opened: list[KillableOptimiser] = []

    def ask(behaviour: str, well: int = 0, **options: int) -> tuple[KillableOptimiser, list[str]]:
        said: list[str] = []
        command = (sys.executable, "-m", "tests.reconciler.control.optimiser.misbehaving", behaviour, str(well))
        opened.append(KillableOptimiser(command, report=said.append, **options))
        return opened[-1], said

    yield ask
    for optimiser in opened:
        optimiser.close()


Asked = Callable[..., tuple[KillableOptimiser, list[str]]]


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("crash", "ended in the middle"),
        ("truncate", "ended in the middle"),
        ("announce-too-much", "announced a frame of"),
        ("garbage", "did not send a well-formed answer"),
        ("odd-bytes", "not finite"),
        ("too-short", "1 values for 2 columns"),
        ("too-long", "3 values for 2 columns"),
        ("nan", "not finite"),
        ("infinite", "not finite"),
        ("below-bounds", "break the program"),
        ("above-bounds", "break the program"),
        ("fraction", "break the program"),
        ("breaks-row", "break the program"),
    ],
)
def test_a_child_that_fails_costs_one_answer(asked: Asked, behaviour: str, said: str) -> None:
    optimiser, heard = asked(behaviour, well=1)
    first = optimiser(PROGRAM, START, PATIENCE)
    assert first is not None
    assert optimiser(PROGRAM, START, PATIENCE) is None
    assert said in heard[0]
    again = optimiser(PROGRAM, START, PATIENCE)
    assert again is not None
    assert again.solver != first.solver, "the child that failed was asked again"


@pytest.mark.parametrize("behaviour", ["hang", "deaf"])
def test_a_child_that_overruns_is_killed(asked: Asked, behaviour: str) -> None:
    optimiser, heard = asked(behaviour)
    # Far more than a pipe holds, so that a deaf child blocks the sender.
    long = dataclasses.replace(PROGRAM, entry_value=np.ones(1_000_000))
    optimiser.warm_up()
    assert optimiser(long, START, SOON) is None
    assert "no answer within 1.50 s" in heard[0]


def test_a_child_that_never_greets_is_given_up(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "START_LIMIT_S", 0.2)
    optimiser, heard = asked("mute")
    assert optimiser(PROGRAM, START, PATIENCE) is None
    assert "did not begin within 0.2 s" in heard[0]


def test_nobody_waits_longer_for_a_child_to_begin_than_for_its_answer(asked: Asked) -> None:
    optimiser, heard = asked("mute")
    assert optimiser(PROGRAM, START, HASTE) is None
    assert heard == ["the optimiser is still starting, or answers another"]


def test_a_child_that_eats_memory_is_stopped_by_its_limit(asked: Asked) -> None:
    optimiser, heard = asked("eat-memory", memory_bytes_max=4 << 30)
    assert optimiser(PROGRAM, START, PATIENCE) is None
    assert "ended in the middle" in heard[0]


def test_a_child_killed_between_rounds_is_replaced(asked: Asked) -> None:
    optimiser, _ = asked("good")
    first = optimiser(PROGRAM, START, PATIENCE)
    assert first is not None
    os.kill(int(first.solver.split()[1]), signal.SIGKILL)
    assert optimiser(PROGRAM, START, PATIENCE) is None
    assert optimiser(PROGRAM, START, PATIENCE) is not None


def test_a_program_that_its_own_start_breaks_is_told() -> None:
    heard: list[str] = []
    with KillableOptimiser(report=heard.append) as optimiser:
        assert optimiser(PROGRAM, np.array([10.0, 6.0]), PATIENCE) is None
        assert optimiser(PROGRAM, START, PATIENCE) is not None
    (said,) = heard
    assert said.startswith("the optimiser refused a program")


def test_the_child_is_kept_between_rounds(asked: Asked) -> None:
    optimiser, _ = asked("good")
    answers = [optimiser(PROGRAM, START, PATIENCE) for _ in range(3)]
    assert len({answer.solver for answer in answers if answer}) == 1
    assert all(answer is not None and np.array_equal(answer.values, START) for answer in answers)


def test_highs_answers_from_its_child() -> None:
    heard: list[str] = []
    with KillableOptimiser(report=heard.append) as optimiser:
        optimiser.warm_up()
        solution = optimiser(PROGRAM, START, PATIENCE)
    assert heard == []
    assert solution is not None
    assert solution.values.sum() == 15.0
    assert [(reached.value, reached.bound) for reached in solution.reached] == [(15.0, 15.0)]
    in_process = optimise(PROGRAM, START, PATIENCE)
    assert in_process is not None
    assert np.array_equal(solution.values, in_process.values)
    assert (solution.reached, solution.solver) == (in_process.reached, in_process.solver)


def test_highs_prints_nothing_into_what_a_command_says() -> None:
    script = (
        "from tests.reconciler.control.optimiser.test_parent import PATIENCE, PROGRAM, START, dataclasses, optimise\n"
        "for effort in (PATIENCE, dataclasses.replace(PATIENCE, bounding=True)): assert optimise(PROGRAM, START, effort)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_a_solver_that_prints_as_it_is_imported_garbles_no_answer(tmp_path: Path) -> None:
    (tmp_path / "highspy.py").write_text('import os\nos.write(1, b"this is a solver")\nraise SystemExit(7)\n')
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[4]}"}
    ran = subprocess.run(HIGHS_CHILD, env=environment, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (7, b"", b"this is a solver")


def test_a_command_that_is_not_there_is_a_failure_like_any_other() -> None:
    heard: list[str] = []
    optimiser = KillableOptimiser(("/no/such/solver",), report=heard.append)
    assert optimiser(PROGRAM, START, PATIENCE) is None
    assert "/no/such/solver" in heard[0]


def test_a_child_without_parent_ends_by_its_own_alarm() -> None:
    code = """if True:
        import sys, time
        from reconciler.control.optimiser.child import serve
        def hang(program, start, effort):
            time.sleep(600)
        serve(hang, sys.stdin.buffer, sys.stdout.buffer)
    """
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdin is not None
        assert child.stdout is not None
        read_frame(child.stdout)
        write_frame(child.stdin, encode(OptimiserQuestion(PROGRAM, START, HASTE)))
        assert child.wait(timeout=60) == -signal.SIGALRM


def test_ctrl_c_in_a_terminal_does_not_reach_the_child(asked: Asked) -> None:
    optimiser, _ = asked("good")
    answer = optimiser(PROGRAM, START, PATIENCE)
    assert answer is not None
    child = int(answer.solver.split()[1])
    assert os.getpgid(child) == child != os.getpgrp()


def test_a_child_whose_parent_has_gone_before_it_greets_says_nothing() -> None:
    child = subprocess.Popen(HIGHS_CHILD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == 0
