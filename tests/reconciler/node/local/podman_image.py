"""An image for tests, made of one static program, or why there can be none on this machine."""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from reconciler.node.local.podman import Podman, find_podman
from reconciler.node.local.runtimes import NoContainersError

_BUSYBOX = Path("/bin/busybox")
_APPLETS = (
    "sh",
    "sleep",
    "cat",
    "echo",
    "id",
    "env",
    "ls",
    "touch",
    "grep",
    "true",
    "stat",
    "kill",
    "wc",
    "setsid",
    "dd",
    "ps",
)


IMAGE = f"localhost/quorate-tests:{hashlib.sha256(' '.join(_APPLETS).encode()).hexdigest()[:12]}"
"""Another one for other content, since the one that is there is not made again."""


@cache
def podman_or_why() -> Podman | str:
    """The podman of this machine with the image in it, and what runs it; or why tests that need it are skipped."""
    if not _BUSYBOX.exists():
        return "there is no /bin/busybox to make an image of: apt-get install busybox-static"
    try:
        podman = find_podman()
    except NoContainersError as error:
        return f"{error}: apt-get install podman runc"
    problem = _imported(podman)
    if problem:
        return f"podman imports no image here: {problem}"
    tried = subprocess.run(
        [
            *podman.program,
            "run",
            "--rm",
            "--network=none",
            "--ulimit=nofile=64:64",
            "--ulimit=nproc=64:64",
            IMAGE,
            "true",
        ],
        capture_output=True,
    )
    return podman if tried.returncode == 0 else f"podman runs nothing here: {tried.stderr.decode()}"


def _imported(podman: Podman) -> str:
    """Why the image is not there; "": it is. Made once: another one of its name would take it from who runs it by its digest."""
    with (Path(tempfile.gettempdir()) / f"quorate-tests-image-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        if subprocess.run([*podman.program, "image", "exists", IMAGE]).returncode == 0:
            return ""
        made = subprocess.run([*podman.program, "import", "--quiet", "-", IMAGE], input=_root(), capture_output=True)
        return made.stderr.decode() if made.returncode else ""


def digest_of(podman: Podman) -> str:
    """By which digest the image may be named too."""
    asked = [*podman.program, "image", "inspect", "--format={{.Digest}}", IMAGE]
    return subprocess.run(asked, capture_output=True, check=True).stdout.decode().strip()


def _root() -> bytes:
    """A root file system of one program under several names."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name in ("bin", "tmp", "proc", "sys", "dev", "etc", "run"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        archive.add(shutil.which("busybox") or str(_BUSYBOX), "bin/busybox")
        for applet in _APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    return content.getvalue()
