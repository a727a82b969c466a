"""The limit of a log, from Git to `quorate logs`."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.e2e.control_plane import QUORATE, ControlPlane, sh, submit, until
from tests.reconciler.gitops.source.origin import Origin

LIMIT = "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: all}\nspec: {logs: {maxPerTask: 1Mi}}\n"


@pytest.mark.thorough
def test_the_logs_of_a_chatty_job_show_its_head_its_end_and_what_is_left_out(
    plane: ControlPlane, origin: Origin
) -> None:
    origin.commit({"policies/settings.yaml": LIMIT})
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, ["chatty"], sh("seq 1 1000000"))
        until("it has ended", lambda: client.job("chatty").outcome)
    folder = plane.folder.tasks
    assert sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) < 2**20 + 2**17
    for options in ((), ("--follow",)):
        told = shown(plane, *options)
        assert told.startswith("1\n2\n3\n")
        assert told.endswith("999999\n1000000\n")
        (many,) = re.findall(r"^\[quorate: (\d+) bytes of output are left out here", told, re.MULTILINE)
        notice = re.findall(r"\n\[quorate: .*\]\n", told)[0]
        assert int(many) + len(told) - len(notice) == sum(len(f"{number}\n") for number in range(1, 1_000_001))
    assert shown(plane, "--tail", "2") == "999999\n1000000\n"


def shown(plane: ControlPlane, *options: str) -> str:
    server = plane.logged("listening")[-1]["url"]
    command = [sys.executable, *QUORATE, "logs", "chatty", "--server", server, *options]
    environment = {**os.environ, "QUORATE_TOKEN_FILE": str(plane.folder.token)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
