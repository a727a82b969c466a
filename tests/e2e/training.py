"""A tiny training run: six shards of data, however many tasks there are, and one number that depends on every step of all.

Run as every task of a gang: `training.py STEPS PACE_S [ENOUGH]`; with ENOUGH it goes on beyond STEPS until there is such a file.
Rank 0 leads. In each step it deals the shards out, adds up what comes back, does itself what is missing, and says whether all
save. So the result is the same whoever dies or joins, if nothing is lost or done twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from quorate import checkpoint

SHARDS = 6
PRIME = 2**61 - 1
PATIENCE_S = 180
"""Longer than a network is cut here, and than it takes TCP then to notice that it is there again."""


def gradient(shard: int, step: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{shard}/{step}".encode()).digest()[:6], "big")


def after(weight: int, step: int, total: int) -> int:
    return (weight * 31 + total + step) % PRIME


def trained(steps: int) -> int:
    """What an undisturbed run comes to."""
    weight = 0
    for step in range(1, steps + 1):
        weight = after(weight, step, sum(gradient(shard, step) for shard in range(SHARDS)))
    return weight


class Line:
    """One connection that carries JSON, a document a line."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE_S)
        self._file = connection.makefile("rwb")

    def say(self, what: dict[str, Any]) -> None:
        self._file.write(json.dumps(what).encode() + b"\n")
        self._file.flush()

    def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self._file.readline())
        return heard


def save(step: int, weight: int) -> None:
    path = Path(f"state-{step}")
    path.write_text(json.dumps({"weight": weight, "padding": "x" * 4_000}))
    checkpoint.commit(step, {"state": path})
    path.unlink()


def begun() -> tuple[int, int]:
    found = checkpoint.latest()
    if found is None:
        return 0, 0
    state = json.loads(Path(found.shard("state", "worker.0")).read_text())
    print(f"going on from step {found.step}", flush=True)
    return found.step, state["weight"]


def lead(steps: int, pace_s: float, enough: Path | None) -> None:
    """Rank 0."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with socket.create_server(address) as server:
        lines = [Line(server.accept()[0]) for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
        server.settimeout(0)
        step, weight = begun()
        while step < steps or (enough is not None and not enough.exists()):
            with suppress(BlockingIOError):
                lines.append(Line(server.accept()[0]))
            step += 1
            lines, weight = one_step(lines, step, weight)
            checkpoint.progress(step, 1 / pace_s)
            time.sleep(pace_s)
        for line in lines:
            with suppress(OSError):
                line.say({"done": True})
    print(f"result {weight} of {step} steps", flush=True)


def one_step(lines: list[Line], step: int, weight: int) -> tuple[list[Line], int]:
    dealt = [list(range(place, SHARDS, len(lines) + 1)) for place in range(len(lines) + 1)]
    added, living = {shard: gradient(shard, step) for shard in dealt[-1]}, []
    for line, shards in zip(lines, dealt, strict=False):
        with suppress(OSError, ValueError):  # it is gone: its shards are done here
            line.say({"step": step, "shards": shards})
            added |= {int(shard): value for shard, value in line.hear().items()}
            living.append(line)
    added |= {shard: gradient(shard, step) for shard in range(SHARDS) if shard not in added}
    weight = after(weight, step, sum(added.values()))
    saves = checkpoint.should_checkpoint()
    for line in living:
        with suppress(OSError):
            line.say({"save": saves, "weight": weight})
    if saves:
        save(step, weight)
    return living, weight


def follow() -> None:
    """Every other rank."""
    line = Line(meet())
    while True:
        dealt = line.hear()
        if "done" in dealt:
            return
        step = dealt["step"]
        line.say({str(shard): gradient(shard, step) for shard in dealt["shards"]})
        heard = line.hear()
        if heard["save"]:
            save(step, heard["weight"])
        checkpoint.progress(step)


def meet() -> socket.socket:
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
        time.sleep(0.05)


if __name__ == "__main__":
    print(
        f"task {os.environ['QUORATE_INDEX']} of attempt {os.environ['QUORATE_ATTEMPT']}, process {os.getpid()}",
        flush=True,
    )
    if os.environ["QUORATE_INDEX"] == "0":
        lead(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    else:
        follow()
