"""What people see of Quorate through `kubectl quorate`, and, where it is there, through kubectl itself."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hack.kubernetes.cluster import Cluster
from hack.kubernetes.components import ComponentMissingError, found, place
from reconciler.cli.exits import ExitCode
from reconciler.cli.kubectl.main import run
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.status.queue_status import QueueStatusWriter
from reconciler.kubernetes.status.queues import PolicyState, queues_of
from reconciler.model.clock import SystemClock
from tests.kubernetes.installing import ACCOUNT, emptied, granted, with_queues
from tests.kubernetes.sessions import REAL, a_namespace, session
from tests.kubernetes.test_teller import RIGHTS, a_job, a_teller, facts, told
from tests.reconciler.kubernetes.test_queues import policy, world

pytestmark = REAL
Capture = pytest.CaptureFixture[str]


class Site(NamedTuple):
    """A namespace with pods that have been told something: `lost` names no queue, of the gang of `worker-0` one is on a node."""

    namespace: str
    kubeconfig: Path


@pytest.fixture
def site(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    async def story() -> str:
        async with session(cluster) as admin, session(cluster, ACCOUNT, ()) as api:
            await with_queues(admin)
            await granted(admin, ACCOUNT, RIGHTS)
            space = await a_namespace(admin)
            await made(admin, space)
            await told(a_teller(api), await facts(admin, space))
            await QueueStatusWriter(api, lambda: None, SystemClock()).tell(
                queues_of(world(), policy(), PolicyState("abc123"))
            )
        return space

    async def left(space: str) -> None:
        async with session(cluster) as admin:
            await emptied(admin, space)

    kubeconfig = cluster.kubeconfig("admin", ("system:masters",))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("PATH", "/nowhere")  # the machine's own kubectl has no say
    space = asyncio.run(story())
    yield Site(space, kubeconfig)
    asyncio.run(left(space))


async def made(admin: Api, space: str) -> None:
    await admin.create(PODS.path(space), a_job("lost", 1, ""))
    for number in range(2):
        worker = a_job(f"worker-{number}", 1, "large")
        worker["metadata"]["annotations"] = {"quorate.dev/gang": "train", "quorate.dev/gang-size": "3"}
        await admin.create(PODS.path(space), worker)
    binding = {
        "metadata": {"name": "worker-0", "annotations": {"quorate.dev/devices": "n0/3"}},
        "target": {"kind": "Node", "name": "n0"},
    }
    await admin.create(PODS.path(space, "worker-0", "binding"), binding)


def test_why_lists_what_the_pod_says_and_its_events(site: Site, capsys: Capture) -> None:
    assert run(["why", "lost", "-n", site.namespace]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        f"lost in namespace {site.namespace}: it waits: Refused",
        "  - refused: names no queue. Write the label quorate.dev/queue or kueue.x-k8s.io/queue-name.",
        "Events, the newest last:",
    ]
    assert lines[3].endswith(
        "Refused: refused: names no queue. Write the label quorate.dev/queue or kueue.x-k8s.io/queue-name."
    )
    assert run(["why", "worker-0", "-n", site.namespace, "-o", "json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["node"], told["devices"], told["reason"], told["message"]) == ("n0", ["n0/3"], "", "")


def test_gang_lists_the_pods_of_the_gang(site: Site, capsys: Capture) -> None:
    assert run(["gang", "worker-1", "-n", site.namespace]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"gang {site.namespace}.gang.train: 2 pods, 1 on nodes"
    assert [line.split() for line in lines[1:4]] == [
        ["POD", "ROLE", "PHASE", "NODE", "DEVICES", "WHY"],
        ["worker-0", "worker", "Pending", "n0", "n0/3"],
        ["worker-1", "worker", "Pending", "WaitingForGang"],
    ]
    assert lines[4] == "its gang is not whole: waiting for 1 of 3 pods"


def test_queues_are_shown_as_a_tree(site: Site, capsys: Capture) -> None:
    assert run(["queues"]) == ExitCode.OK
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[1][:2] + shown[1][3:6] == ["org", "1", "H100-SXM5-80GB", "12", "12"]
    assert shown[2][0] == "q"
    assert shown[2][-2:] == ["2", "8.5"]


def test_what_goes_wrong_has_its_exit_code(
    site: Site, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert run(["why", "worker-9", "-n", site.namespace]) == ExitCode.ERROR
    assert "Did you mean worker-1?" in capsys.readouterr().err
    assert run(["why", "lost", "--context", "far"]) == ExitCode.NOT_AUTHORISED
    assert "there is no context 'far'" in capsys.readouterr().err
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig("nobody", ())))
    assert run(["why", "lost", "-n", site.namespace]) == ExitCode.NOT_AUTHORISED
    assert "403" in capsys.readouterr().err
    unreachable = cluster.folder / "unreachable.kubeconfig"
    unreachable.write_text(site.kubeconfig.read_text().replace(cluster.server, "https://127.0.0.1:9"))
    monkeypatch.setenv("KUBECONFIG", str(unreachable))
    monkeypatch.setattr("reconciler.kubernetes.client.api.BACKOFF_S", 0.001)
    assert run(["why", "lost", "-n", site.namespace]) == ExitCode.SERVER_UNREACHABLE


@pytest.fixture
def kubectl(site: Site) -> Any:
    """kubectl, which finds the plugin on its PATH; skipped where it was not built."""
    try:
        program = found(place(), ("kubectl",)).path("kubectl")
    except ComponentMissingError as missing:
        pytest.skip(str(missing))
    plugin = site.kubeconfig.parent / "bin" / "kubectl-quorate"
    plugin.parent.mkdir(exist_ok=True)
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m reconciler.cli.kubectl.main "$@"\n')
    plugin.chmod(0o755)
    environment = {**os.environ, "PATH": f"{plugin.parent}:{program.parent}:/usr/bin:/bin", "PYTHONPATH": os.getcwd()}

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), "--cache-dir", str(site.kubeconfig.parent / "cache"), *arguments]
        if arguments[0] == "quorate":
            command = [str(program), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    return ran


def test_kubectl_prints_queues_waits_for_them_and_finds_the_plugin(site: Site, kubectl: Any) -> None:
    shown = [line.split() for line in kubectl("get", "qq").stdout.splitlines()]
    assert shown[0] == ["NAME", "PARENT", "GUARANTEED", "USED", "BORROWED", "PENDING", "READY"]
    assert ["q", "org", "4", "6", "2", "8.5", "True"] in shown
    assert kubectl("get", "queues.quorate.dev", "q", "-o", "jsonpath={.status.total.borrowed}").stdout == "2"
    assert kubectl("wait", "--for=condition=Ready", "queues.quorate.dev/q", "--timeout=30s").returncode == 0
    assert kubectl("wait", "--for=condition=Ready=false", "queues.quorate.dev/q", "--timeout=1s").returncode == 1
    assert kubectl("quorate", "why", "lost", "-n", site.namespace).stdout.startswith("lost in namespace ")


def test_kubectl_waits_for_pods_and_shows_why(site: Site, kubectl: Any) -> None:
    inside = ("-n", site.namespace)
    assert kubectl("wait", "--for=condition=PodScheduled", "pod/worker-0", "--timeout=30s", *inside).returncode == 0
    refused = '--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Refused'
    assert kubectl("wait", refused, "pod/lost", "--timeout=30s", *inside).returncode == 0
    assert kubectl("wait", refused, "pod/worker-1", "--timeout=1s", *inside).returncode == 1
    described = kubectl("describe", "pod", "lost", *inside).stdout
    assert "quorate.dev/scheduler" in described
    assert "names no queue" in described
