"""Runs the tests of control groups on a machine whose controllers are with version 1, under a kernel of their own.

    apt-get install user-mode-linux && python -m hack.cgroup_v2

User-mode Linux is a Linux kernel that is a process: it sees this machine's files, has all controllers with version 2, and touches
nothing of the machine's own groups. It takes root, whose files it reads, and writes to folders in its memory alone.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

TESTS: Final = ("tests/reconciler/node/local/test_cgroups.py",)
_MEMORY: Final = "2048M"
_LIMIT_S: Final = 600
_MARK: Final = "exit code of the tests: "

_INIT: Final = """#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm && mount -t tmpfs shm /dev/shm
mount -t tmpfs tmpfs /tmp
ip link set lo up
cd {root} && PATH={path}:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 PYTHONPATH={root} PYTHONDONTWRITEBYTECODE=1 \\
    {python} -m pytest -q -rs --color=no -p no:cacheprovider {tests}
echo "{mark}$?"
echo o > /proc/sysrq-trigger
sleep 60
"""


def main(tests: list[str]) -> int:
    """Run them; the exit code of pytest, or 1 where that never came about."""
    program = shutil.which("linux.uml") or shutil.which("linux")
    if program is None:
        sys.exit("There is no user-mode Linux here. Install it: apt-get install user-mode-linux")
    with tempfile.NamedTemporaryFile("w", suffix=".sh", dir="/var/tmp") as init:  # its /tmp is another one
        init.write(
            _INIT.format(
                root=shlex.quote(str(Path.cwd())),
                path=shlex.quote(str(Path(sys.executable).parent)),
                python=shlex.quote(sys.executable),
                tests=shlex.join(tests or TESTS),
                mark=_MARK,
            )
        )
        init.flush()
        kernel = [program, f"mem={_MEMORY}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "quiet"]
        ran = subprocess.run(
            [*kernel, "init=/bin/sh", "con0=fd:0,fd:1", "con=null", "--", init.name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    print(ran.stdout)
    _, _, code = ran.stdout.rpartition(_MARK)
    return int(code.split()[0]) if _MARK in ran.stdout else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
