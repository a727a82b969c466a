"""`kubectl quorate` as far as it needs no cluster: its command line, what it prints, and its way through kubectl."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.exits import ExitCode
from reconciler.cli.kubectl.main import main, run
from reconciler.cli.kubectl.pods import PodWhy, ToldEvent, why_lines
from reconciler.cli.kubectl.queues import QueueListing, ToldQueue, host_rows, notes, rows
from solver.model.quantities import Instant
from tests.house.tracked import ROOT
from tests.unimported import unimport

Capture = pytest.CaptureFixture[str]

FAKE = """#!{python}
import json, sys
asked = sys.argv[1:]
if "lost" in asked:
    sys.exit("error: cannot locate context lost")
if "view" in asked:
    print("vision", end="")
elif asked[-1].endswith("/pods/p"):
    waits = {{"type": "PodScheduled", "status": "False", "reason": "Held", "message": "waits: " + " ".join(asked)}}
    spec, status = {{"containers": [], "schedulerName": "quorate"}}, {{"conditions": [waits]}}
    print(json.dumps({{"metadata": {{"name": "p", "uid": "u"}}, "spec": spec, "status": status}}))
elif "/events?" in asked[-1]:
    sys.exit("Error from server (Forbidden): events is forbidden")
elif "/pods?" in asked[-1]:
    print(json.dumps({{"items": [{{"metadata": {{"name": "worker-1"}}, "spec": {{"containers": []}}}}]}}))
elif "/pods/" in asked[-1]:
    sys.exit("Error from server (NotFound): pods not found")
else:
    sys.exit("Unable to connect to the server: no such host")
"""


@pytest.fixture
def fake_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On the PATH, with a kubeconfig that our client does not take."""
    program = tmp_path / "kubectl"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {as: admin}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return program


def test_kubectl_finds_the_plugin_by_its_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["kubectl-quorate"].partition(":")
    assert getattr(import_module(module), function) is main


def test_help_names_the_commands(capsys: Capture) -> None:
    assert run(["--help"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert shown.startswith("Usage: kubectl quorate ")
    assert all(name in shown for name in ("why", "gang", "queues"))


@pytest.mark.parametrize("arguments", [["why"], ["why", "a", "b"], ["why", "a", "-o", "yaml"], ["wy"]])
def test_usage_errors_exit_with_64(arguments: list[str], capsys: Capture) -> None:
    assert run(arguments) == ExitCode.USAGE
    assert "See `kubectl quorate" in capsys.readouterr().err


def test_credentials_that_only_kubectl_takes_go_through_it(fake_kubectl: Path, capsys: Capture) -> None:
    assert run(["why", "p"]) == ExitCode.OK
    assert capsys.readouterr().out == (
        "p in namespace vision: it waits: Held\n"
        "  - waits: get --raw /api/v1/namespaces/vision/pods/p\n"
        "Its events may not be read.\n"
    )
    assert run(["why", "p", "-n", "nlp", "--context", "far"]) == ExitCode.OK
    assert "waits: --context far get --raw /api/v1/namespaces/nlp/pods/p" in capsys.readouterr().out


def test_what_kubectl_says_becomes_an_exit_code(fake_kubectl: Path, capsys: Capture) -> None:
    assert run(["why", "worker-2"]) == ExitCode.ERROR
    assert capsys.readouterr().err == (
        "error: there is no pod worker-2 in namespace vision\n  Did you mean worker-1?\n"
    )
    assert run(["queues"]) == ExitCode.SERVER_UNREACHABLE
    assert "no such host" in capsys.readouterr().err
    assert run(["why", "p", "--context", "lost"]) == ExitCode.NOT_AUTHORISED
    assert "cannot locate context lost" in capsys.readouterr().err


def test_without_kubectl_the_kubeconfig_is_refused_with_what_to_do(fake_kubectl: Path, capsys: Capture) -> None:
    fake_kubectl.unlink()
    assert run(["why", "p"]) == ExitCode.NOT_AUTHORISED
    assert "as is not supported. " in capsys.readouterr().err


def test_without_the_client_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    unimport(monkeypatch, "reconciler.cli.kubectl.", "reconciler.kubernetes.")
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert run(["queues"]) == ExitCode.ERROR
    assert "pip install 'quorate[kubernetes]'" in capsys.readouterr().err


def a_pod(**said: Any) -> PodWhy:
    usual: dict[str, Any] = {
        "namespace": "vision", "name": "p", "phase": "Pending", "scheduler": "quorate", "node": "", "devices": (),
        "reason": "", "message": "", "events": (),
    }  # fmt: skip
    return PodWhy(**{**usual, **said})


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ({}, "no round has said anything of it yet"),
        ({"scheduler": "default-scheduler"}, "it is not Quorate's; its schedulerName is default-scheduler"),
        ({"phase": "Running", "node": "n1", "devices": ("a", "b")}, "it is on n1 with a, b: Running"),
        ({"phase": "Succeeded", "node": "n1"}, "it has ended: Succeeded"),
    ],
)
def test_a_pod_says_where_it_stands(said: dict[str, Any], first: str) -> None:
    assert list(why_lines(a_pod(**said))) == [f"p in namespace vision: {first}"]


def test_a_waiting_pod_lists_why_and_the_newest_events() -> None:
    events = tuple(
        ToldEvent(Instant.parse(f"2026-11-20T08:00:{number:02}Z"), "Waiting", f"why {number}", "Normal", number)
        for number in range(1, 13)
    )
    lines = list(why_lines(a_pod(reason="QuotaMax", message="waits: a; would help: b; c", events=events)))
    assert lines[:5] == [
        "p in namespace vision: it waits: QuotaMax",
        "  - waits: a",
        "  - would help: b",
        "  - c",
        "Events, the newest last:",
    ]
    assert len(lines) == 5 + 10
    assert lines[-1].endswith("Waiting: why 12 (12 times)")


def test_cpu_and_memory_stand_in_the_tree_as_well() -> None:
    line = {"guaranteed": "8", "fairShare": "9", "used": "4", "withoutGpus": "2", "borrowed": "0", "pending": "1"}
    host = [{"resource": "cpu", "max": "64", **line}, {"resource": "memory", "lendable": "1Gi", **line}]
    found = QueueListing((ToldQueue("a", {"parent": "b", "host": host}), ToldQueue("b", {"host": host[:1]})))
    assert list(host_rows(found)) == [
        ["b", "cpu", "8", "all", "64", "none", "9", "4", "2", "0", "1"],
        ["  a", "cpu", "8", "all", "64", "none", "9", "4", "2", "0", "1"],
        ["", "memory", "8", "1Gi", "none", "none", "9", "4", "2", "0", "1"],
    ]
    assert list(host_rows(QueueListing((ToldQueue("a", {}),)))) == []


def test_queues_are_a_tree_and_say_what_holds_them() -> None:
    held = {"type": "Ready", "status": "False", "message": "queue b has stopPolicy Hold"}
    stalled = {"type": "Stalled", "status": "True", "message": "PlanDrift"}
    gpus = [{"gpuType": "H100", "guaranteed": 4, "fairShare": 5, "used": 6.5, "borrowed": 2.5, "pending": 8}]
    jobs = {"running": 1, "pending": 2}
    found = QueueListing(
        (
            ToldQueue("a", {"parent": "b", "gpus": gpus, "jobs": jobs, "conditions": [stalled]}),
            ToldQueue("b", {"gpus": [{**gpus[0], "max": 9}], "jobs": jobs, "conditions": [held, stalled]}),
            ToldQueue("c", {"parent": "gone"}),
        )
    )
    assert list(rows(found)) == [
        ["b", "1", "2", "H100", "4", "9", "5", "6.5", "2.5", "8"],
        ["  a", "1", "2", "H100", "4", "none", "5", "6.5", "2.5", "8"],
        ["c", "", ""],
    ]
    assert list(notes(found)) == [
        "a newer policy is not in force: PlanDrift",
        "queue b starts no jobs: queue b has stopPolicy Hold",
    ]
