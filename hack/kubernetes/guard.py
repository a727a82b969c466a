"""Runs commands, and ends them once whoever started it is gone: a pipe to its standard input closes even at kill -9."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
from pathlib import Path

LOOK_EVERY_S = 0.5
"""How soon it is noticed that one has ended by itself; then the others are of no use."""


def start(commands: dict[str, list[str]], logs: Path, by: signal.Signals = signal.SIGKILL) -> subprocess.Popen[bytes]:
    """Start a guard with these commands; each writes into logs/NAME.log. `stop`, or the end of this process, ends them all.

    `by`: the signal that ends them; one that none of them can put off.
    """
    return subprocess.Popen(
        [sys.executable, __file__, json.dumps(commands), str(logs), str(by.value)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def stop(guard: subprocess.Popen[bytes]) -> None:
    """End what it guards, and wait until that is so."""
    if guard.stdin:
        guard.stdin.close()
    guard.wait()


def main(commands: dict[str, list[str]], logs: Path, by: int) -> None:
    """Until standard input ends, or one of them does; in a session of its own, so that Ctrl-C does not reach what it guards."""
    children = []
    for name, command in commands.items():
        with (logs / f"{name}.log").open("wb") as log:
            children.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT))
    while not select.select([sys.stdin], [], [], LOOK_EVERY_S)[0] and all(child.poll() is None for child in children):
        pass
    # Not asked first: an API server takes up to ten seconds to end by itself, and nobody needs what they keep.
    for child in children:
        child.send_signal(by)
        child.wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
