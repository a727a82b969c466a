"""The command line itself: help, unknown commands, exit codes, and that nothing heavy is imported to print help."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from reconciler.api.server import ApiServer
from reconciler.cli.exits import ExitCode
from reconciler.cli.main import COMMANDS, LazyGroup, cli, run
from reconciler.cli.other_words import CALLED_HERE
from reconciler.cli.output import CommandFailedError, print_error
from tests.reconciler.api.conftest import Site
from tests.reconciler.cli.conftest import Quorate, submitted


def test_exit_codes_are_frozen() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "OK": 0,
        "ERROR": 1,
        "CHANGES": 2,
        "POLICY_INVALID": 3,
        "STALE_PLAN": 4,
        "GUARDRAIL_REFUSED": 5,
        "NOT_AUTHORISED": 6,
        "WAIT_TIMED_OUT": 7,
        "SERVER_UNREACHABLE": 8,
        "AUDIT_BROKEN": 9,
        "USAGE": 64,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_lists_every_command(quorate: Quorate, arguments: tuple[str, ...]) -> None:
    ran = quorate(*arguments)
    assert ran.exit_code == ExitCode.OK
    assert all(name in ran.out and command.summary in ran.out for name, command in COMMANDS.items())


def test_every_command_exists_and_helps(quorate: Quorate) -> None:
    for name in COMMANDS:
        ran = quorate(name, "--help")
        assert (ran.exit_code, ran.out.splitlines()[0].split()[:3]) == (ExitCode.OK, ["Usage:", "quorate", name])


def test_an_unknown_command_is_a_usage_error_with_the_nearest(quorate: Quorate) -> None:
    ran = quorate("valdate")
    assert ran == (64, "", "error: there is no command 'valdate'. Did you mean validate?\n  See `quorate --help`.\n")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("squeue", "there is no command 'squeue'. Did you mean get?"),
        ("srun python", "Did you mean submit --pty?"),
        ("frobnicate", "there is no command 'frobnicate'.\n"),
        ("run python train.py", "a job is started by `quorate submit --queue QUEUE -- python ...`."),
        ("plan more-for-a", "plan takes no argument 'more-for-a'. Write --head more-for-a for a revision.\n"),
        ("status train", "of a job say `quorate describe train`.\n  See `quorate status --help`."),
        ("nodes n1", "`quorate nodes` shows all of them, with the jobs on each."),
        ("get -o yml", "'yml' is not one of 'text', 'wide', 'json'."),
        ("get --state queue", "Did you mean queued?\n"),
        ("submit --gpus two -- true", "Invalid value for '--gpus': 'two' is no whole number."),
    ],
)
def test_what_is_typed_by_habit_is_told_with_what_it_is_called_here(quorate: Quorate, line: str, told: str) -> None:
    ran = quorate(*line.split())
    assert (ran.exit_code, told in ran.err) == (64, True), ran.err


def test_what_is_called_otherwise_elsewhere_is_no_command_and_means_one() -> None:
    assert not CALLED_HERE.keys() & COMMANDS.keys()
    assert {meant.split()[0] for meant in CALLED_HERE.values()} <= {*COMMANDS, "--version"}


@pytest.mark.parametrize(
    "arguments", [("--nope",), ("validate", "--nope"), ("validate", "a", "b"), ("validate", "-o", "x")]
)
def test_usage_errors_exit_with_64(quorate: Quorate, arguments: tuple[str, ...]) -> None:
    ran = quorate(*arguments)
    assert ran.exit_code == ExitCode.USAGE
    assert ran.err.startswith("error: ")
    assert "Traceback" not in ran.err


GROUPS = [
    name
    for name in COMMANDS
    if isinstance(command := cli.get_command(click.Context(cli), name), click.Group)
    and not command.invoke_without_command
]


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_without_its_command_says_plainly_which_there_are(quorate: Quorate, name: str) -> None:
    ran = quorate(name)
    assert (ran.exit_code, ran.out) == (ExitCode.USAGE, "")
    assert ran.err == quorate(name, "--help").out


def test_help_imports_nothing_heavy() -> None:
    """What costs time at start-up, measured by what is loaded: a clock would say something else on every machine."""
    heavy = {
        "yaml",
        "jsonschema",
        "git",
        "msgspec",
        "numpy",
        "rich",
        "sqlalchemy",
        "httpx2",
        "pulp",
        "highspy",
        "networkx",
        "fastapi",
        "uvicorn",
        "asyncio",
        "aiohttp",
        "kubernetes",
    }
    listing = (
        "import sys; from reconciler.cli.main import run; run(['--help']); print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.replace("'", "").strip("[]\n").split(", "))
    assert "click" in loaded
    assert not heavy & loaded


def test_a_failed_command_prints_place_problem_and_fix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def fails() -> None:
        raise CommandFailedError("no\x1b[2J such job", place="llama", fix="Submit it.", exit_code=ExitCode.STALE_PLAN)

    monkeypatch.setattr(LazyGroup, "get_command", lambda *_: fails)
    assert run(["validate"]) == 4
    assert capsys.readouterr().err == "error: llama: no\\x1b[2J such job\n  Submit it.\n"


def test_ctrl_c_is_said_and_has_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def waits() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LazyGroup, "get_command", lambda *_: waits)
    assert run(["wait"]) == 130
    assert capsys.readouterr().err == "\nerror: interrupted\n"  # The first line is that on which a terminal shows ^C.


def test_colour_needs_a_terminal_and_no_color_turns_it_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_error("bad")
    assert capsys.readouterr().err == "error: bad\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    print_error("bad")
    assert "\x1b[31m" in capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    print_error("bad")
    assert capsys.readouterr().err == "error: bad\n"


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    script = f"{sys.executable} -m reconciler.cli.main explain plan | head -c 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("folder", "problem"),
    [("file/x", "Not a directory"), ("x" * 300, "File name too long"), ("/proc/x", "No such file")],
)
def test_a_folder_that_can_not_be_used_is_said(
    quorate: Quorate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    ran = quorate("init", folder)
    assert (ran.exit_code, ran.err.startswith(f"error: {folder}: {problem}")) == (1, True)


def test_a_full_disk_is_no_traceback() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "reconciler.cli.main", "explain"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: No space left on device\n")


@pytest.mark.parametrize(
    ("command", "exit_code", "told"),
    [
        ("submit -f - <&-", 1, "error: stdin:1:1: the file is empty, expected one Job or Pipeline\n"),
        (
            "agents join --server a:1 --identity no/where --token-file - <&-",
            1,
            "error: there is no token: --token-file is empty\n  Make one with `quorate agents token NODE`.\n",
        ),
        ("explain plan >&-", 0, ""),
        ("nonsense 2>&-", 64, ""),
    ],
)
def test_a_stream_that_is_closed_is_an_empty_one(command: str, exit_code: int, told: str) -> None:
    shell = ["bash", "-c", f"{sys.executable} -m reconciler.cli.main {command}"]
    done = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (exit_code, "", told)


def test_only_what_speaks_to_kubernetes_imports_its_client() -> None:
    """A control plane of one machine or of agents has neither its memory nor its seconds."""
    names = "reconciler.server.process", "reconciler.server.agent_cluster", "reconciler.cli.kubernetes_options"
    listing = (
        f"import sys; import {', '.join(names)}; print([n for n in ('aiohttp', 'kubernetes') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    listing = "import sys, reconciler.server.kubernetes_cluster; print('kubernetes.aio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_what_asks_a_server_needs_nothing_of_one() -> None:
    """A command that only asks begins in half the time, and without the extra `server`."""
    servers = "fastapi", "starlette", "uvicorn", "prometheus_client", "cryptography", "sqlalchemy", "numpy", "highspy"
    listing = f"import sys, reconciler.cli.completion; print([n for n in {servers} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", listing], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def completed(words: str) -> list[str]:
    """What a shell is told for this line, its last word unfinished."""
    environment = {
        **os.environ,
        "_QUORATE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run(
        [Path(sys.executable).with_name("quorate")], env=environment, capture_output=True, text=True, check=True
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(quorate: Quorate, shell: str) -> None:
    ran = quorate("completion", shell)
    assert (ran.exit_code, ran.err) == (0, "")
    assert f"_QUORATE_COMPLETE={shell}_complete" in ran.out


def test_commands_options_jobs_and_queues_are_completed(site: Site, at_server: ApiServer) -> None:
    for name in ("trains", "tries", "waits"):
        submitted(site, name)
    assert completed("quorate can") == ["cancel"]
    assert completed("quorate get --qu") == ["--queue"]
    assert completed("quorate why tr") == ["tries", "trains"]
    assert completed("quorate cancel trains tr") == ["tries"]
    assert completed("quorate submit --queue te") == ["team"]
    assert completed("quorate submit --type H") == ["H100"]
    assert completed("quorate submit --mig 3") == ["3g.20gb", "3g.40gb", "3g.47gb", "3g.71gb", "3g.90gb"]


def test_without_a_server_nothing_is_completed_and_nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORATE_SERVER", "http://127.0.0.1:9")
    assert completed("quorate why tr") == []


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("http://127.0.0.1:9", "QUORATE_SERVER names it: change that, start it with `quorate run`, or"),
        (
            "127.0.0.1:9",
            "error: QUORATE_SERVER=127.0.0.1:9: not an http or https URL. Write it like http://127.0.0.1:9\n",
        ),
    ],
)
def test_a_server_that_the_environment_names_is_told_as_that(
    quorate: Quorate, monkeypatch: pytest.MonkeyPatch, named: str, told: str
) -> None:
    monkeypatch.setenv("QUORATE_SERVER", named)
    ran = quorate("get")
    assert (ran.exit_code, told in ran.err) == (8, True)
    assert "QUORATE_SERVER" not in quorate("get", "--server", "http://127.0.0.1:9").err
