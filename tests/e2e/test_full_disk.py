"""The disk of the state folder is full, by what jobs print and write: the control plane goes on, and says so."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from reconciler.access.token_file import read_token
from reconciler.client import ApiError, Client
from tests.e2e.control_plane import ControlPlane, sh, submit, until
from tests.reconciler.gitops.source.origin import Origin

SIZE = "6m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root may mount a file system here, to fill it up")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.fixture
def plane(origin: Origin, small_disk: Path) -> Iterator[ControlPlane]:
    made = ControlPlane(origin.folder, small_disk / "state")
    made._log = origin.folder.parent / "server.log"
    yield made
    made.end()


def under_pressure(client: Client) -> str:
    """What status says of the disk; "" where it has room."""
    return next((each.message for each in client.status().conditions if each.type == "DiskPressure"), "")


def figure(plane: ControlPlane, name: str) -> float:
    url, token = plane.logged("listening")[-1]["url"], read_token(plane.folder.token)
    text = httpx2.get(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"}).text
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name}{{") and 'folder="state"' in line]
    return float(line.split()[-1])


@pytest.mark.thorough
def test_a_chatty_job_leaves_the_ledger_its_room(plane: ControlPlane, small_disk: Path) -> None:
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, ["chatty"], sh("yes"))
        until("the disk is nearly full", lambda: under_pressure(client))
        assert "Output of tasks is dropped until there is room again: free some space" in under_pressure(client)
        assert figure(plane, "quorate_disk_nearly_full") == 1
        assert figure(plane, "quorate_disk_free_bytes") > 0
        submit(client, ["next"], sh("echo hello"))
        until("others run", lambda: client.job("next").state == "succeeded")
        assert client.job("chatty").state == "running"
        client.cancel("chatty")
        until("it has ended", lambda: client.job("chatty").outcome)
        assert client.log("chatty", limit=4) == b"y\ny\n"
        (log,) = [path for path in small_disk.rglob("log") if path.stat().st_size > 2**20]
        log.unlink()
        assert not under_pressure(client)
        assert figure(plane, "quorate_disk_nearly_full") == 0
    assert plane.signal(signal.SIGTERM) == 0


def test_a_full_disk_ends_nothing_and_work_goes_on_once_it_has_room(plane: ControlPlane, small_disk: Path) -> None:
    filler, room = small_disk / "filler", small_disk.parent / "room"
    fills = (
        f"cat /dev/zero > {filler}; until test -e {room}; do cat /dev/zero >> {filler}; sleep 0.02; done; rm {filler}"
    )
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, ["kept"], sh("sleep 600"))
        until("it runs", lambda: client.job("kept").state == "running")
        submit(client, ["fills"], sh(f"{fills} 2> /dev/null"))
        until("it is full", lambda: figure(plane, "quorate_disk_free_bytes") == 0)
        accepted, refused = submitted_until_refused(client)
        assert (refused.status, refused.problem.code) == (503, "store-full")
        assert "the disk is full" in str(refused)
        assert under_pressure(client)
        assert client.job("kept").state == "running"
        until("the loop says so", lambda: leading(client) == "store-full")
        room.touch()
        until("there is room again", lambda: not under_pressure(client))
        again = f"job-{len(accepted)}"
        submit(client, [again], sh("true"))  # with the key of the one that was refused
        until("work goes on", lambda: all(client.job(name).state == "succeeded" for name in (*accepted, again)))
        until("it has ended", lambda: client.job("fills").state == "succeeded")
        assert client.job("kept").state == "running"
        assert client.job("kept").attempt == 1
        assert leading(client) == "leading"
        submit(client, ["last"], sh("true"))
        until("the reserve is there again", lambda: plane.folder.database.with_name("quorate.db-reserve").exists())
    assert plane.signal(signal.SIGTERM) == 0


def leading(client: Client) -> str:
    return next(each.reason for each in client.status().conditions if each.type == "Leading")


def submitted_until_refused(client: Client) -> tuple[list[str], ApiError]:
    """The jobs that were accepted while the disk got full, and the refusal of the one that was not."""
    accepted: list[str] = []
    for number in range(50):
        try:
            submit(client, [f"job-{number}"], sh("true"))
        except ApiError as error:
            return accepted, error
        accepted.append(f"job-{number}")
    raise AssertionError("nothing was ever refused")


@pytest.mark.thorough
def test_it_starts_on_a_full_disk_by_what_is_held_in_reserve(plane: ControlPlane, small_disk: Path) -> None:
    """Else whatever starts it again and again (systemd) would do so in vain, and people could not ask it what is wrong."""
    filler = small_disk / "filler"
    plane.start().until_ready()
    with plane.client() as client:
        submit(client, ["kept"], sh("sleep 600"))
        until("it runs", lambda: client.job("kept").state == "running")
    assert plane.signal(signal.SIGKILL) == -signal.SIGKILL
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    plane.start()
    with plane.client() as client:
        until("it leads, by the room that was held in reserve", lambda: leading(client) == "leading")
        assert under_pressure(client)
        assert client.job("kept").state == "running"
        filler.unlink()
        submit(client, ["next"], sh("true"))
        until("work goes on", lambda: client.job("next").state == "succeeded")
        assert client.job("kept").attempt == 1
    assert plane.signal(signal.SIGTERM) == 0
