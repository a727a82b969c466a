"""`quorate run` with its rounds decided in a process of their own, which is killed beside it, or left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from reconciler.client import Client
from tests.e2e.control_plane import ControlPlane, sh, submit, until

ALWAYS = "--round-worker-from", "0"
MODULE = b"reconciler.control.round_worker.child"


def workers_of(plane: int) -> list[int]:
    """The processes that decide rounds for another."""
    found = list[int]()
    for children in Path(f"/proc/{plane}/task").glob("*/children"):
        pids = [int(pid) for pid in children.read_text(encoding="ascii").split()]
        found += [pid for pid in pids if MODULE in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return found


def succeeded(client: Client, name: str) -> bool:
    return client.job(name).state == "succeeded"


def test_its_worker_is_killed_and_it_goes_on_with_another(plane: ControlPlane) -> None:
    plane.start(*ALWAYS).until_ready()
    with plane.client() as client:
        submit(client, ["first"], sh("true"))
        until("it has run", lambda: succeeded(client, "first"))
        (worker,) = workers_of(plane.pid)
        os.kill(worker, signal.SIGKILL)
        submit(client, ["second"], sh("true"))
        until("it has run", lambda: succeeded(client, "second"))
        submit(client, ["third"], sh("true"))
        until("it has run", lambda: succeeded(client, "third"))
        until("there is another", lambda: workers_of(plane.pid) not in ([], [worker]))
    assert "the round worker" in plane.log()
    (another,) = workers_of(plane.pid)
    assert plane.signal(signal.SIGKILL) == -signal.SIGKILL
    until("the worker has ended with it", lambda: not Path(f"/proc/{another}/cmdline").exists())


@pytest.mark.thorough
def test_a_small_cluster_has_no_worker(plane: ControlPlane) -> None:
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, ["job"], sh("true"))
        until("it has run", lambda: succeeded(client, "job"))
        assert workers_of(plane.pid) == []
