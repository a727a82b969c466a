"""A job in a container under a real control plane."""

from __future__ import annotations

import signal

import msgspec
import pytest

from solver.world.container import Container
from solver.world.workload import JobName
from tests.backends.podman_image import IMAGE, podman_or_why
from tests.e2e.control_plane import ControlPlane, sh, until

pytestmark = pytest.mark.long


def test_a_gang_in_containers_outlives_its_control_plane(plane: ControlPlane) -> None:
    found = podman_or_why()
    if isinstance(found, str):
        pytest.skip(found)
    script = 'echo "$RANK of $WORLD_SIZE in $container"; while [ ! -e go ]; do sleep 0.05; done'
    gang = msgspec.structs.replace(sh(script, tasks=2), container=Container(IMAGE))
    plane.start().until_ready()
    with plane.client() as client:
        client.submit(JobName("gang"), gang)
        until("it runs", lambda: client.job("gang").state == "running")
    assert plane.signal(signal.SIGKILL) == -signal.SIGKILL
    plane.start().until_ready()
    for index in (0, 1):
        (plane.folder.tasks / f"live/gang.1/worker.{index}/work/go").touch()
    with plane.client() as client:
        assert client.wait("gang", timeout_s=60).state == "succeeded"
        assert client.job("gang").attempt == 1
        until("its log is there", lambda: client.log("gang") == b"0 of 2 in podman\n")
