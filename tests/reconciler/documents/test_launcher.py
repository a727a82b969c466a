"""Terminals and launchers in Job documents: what goes with them, and what does not."""

from __future__ import annotations

import pytest

from reconciler.documents.job import read_job
from reconciler.model.problem import InvalidDocumentsError
from solver.model.workload import Container

LAUNCHED = """\
apiVersion: quorate.dev/v1
kind: Job
metadata: {name: mpi}
spec:
  queue: team
  taskGroups:
    - {name: launcher, replicas: 1, launcher: true, shape: {}, command: [mpirun, solve]}
    - {name: worker, replicas: 4, shape: {gpus: 1}}
"""
TERMINAL = """\
apiVersion: quorate.dev/v1
kind: Job
metadata: {name: shell}
spec:
  queue: team
  type: interactive
  terminal: true
  taskGroups: [{name: worker, replicas: 1, shape: {}}]
  command: [bash]
"""


def problems(text: str) -> list[str]:
    with pytest.raises(InvalidDocumentsError) as invalid:
        read_job(text.encode(), "job.yaml")
    return [problem.code for problem in invalid.value.problems]


def test_beside_a_launcher_groups_need_no_command() -> None:
    launcher = read_job(LAUNCHED.encode(), "job.yaml").spec.launcher
    assert launcher is not None
    assert launcher.name == "launcher"
    assert problems(LAUNCHED.replace("launcher: true, ", "")) == ["no-command"]
    assert problems(LAUNCHED.replace(", command: [mpirun, solve]", "")) == ["no-command"]


@pytest.mark.parametrize(
    ("written", "instead", "expected"),
    [
        ("replicas: 1", "replicas: 2", ["one-launcher"]),
        ("replicas: 4", "replicas: 1, launcher: true", ["one-launcher", "no-command"]),
        ("replicas: 4", "replicas: 4, minReplicas: 2", ["launcher-is-rigid"]),
        ("replicas: 4", "replicas: 4, rejoin: true", ["launcher-is-rigid"]),
        ("    - {name: worker, replicas: 4, shape: {gpus: 1}}\n", "", ["launcher-alone"]),
        ("queue: team\n", "queue: team\n  type: service\n", ["one-role", "launcher-is-rigid", "service-never-fails"]),
    ],
)
def test_a_launcher_is_one_task_of_a_rigid_gang(written: str, instead: str, expected: list[str]) -> None:
    assert sorted(problems(LAUNCHED.replace(written, instead))) == sorted(expected)


def test_a_container_is_given_variables_of_one_line() -> None:
    contained = TERMINAL.replace("command: [bash]", "command: [bash]\n  container: {image: example.org/train:1}")
    assert problems(contained + '  env: {KEY: "two\\nlines", FINE: "a=b"}\n') == ["env-of-container"]
    found = read_job((contained + "  env: {FINE: a=b}\n").encode(), "job.yaml").spec.container
    assert found == Container("example.org/train:1", network="host")
    assert problems(contained.replace("image: example.org/train:1", "image: --privileged")) == ["malformed"]
    assert problems(contained.replace("image:", "imag:")) != []


def test_a_terminal_is_that_of_one_interactive_task() -> None:
    assert read_job(TERMINAL.encode(), "job.yaml").spec.terminal
    assert problems(TERMINAL.replace("type: interactive", "type: gang")) == ["terminal-not-interactive"]
    assert problems(TERMINAL.replace("replicas: 1", "replicas: 2")) == ["one-terminal"]
    assert problems(TERMINAL.replace("replicas: 1", "replicas: 1, rejoin: true")) == ["one-terminal"]
