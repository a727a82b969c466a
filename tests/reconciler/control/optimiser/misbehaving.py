"""A child that does what its first argument says: answers well the first N times (second argument), then misbehaves."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import numpy as np

from reconciler.control.optimiser.wire import (
    READY,
    OptimiserAnswer,
    OptimiserQuestion,
    decode,
    encode,
    read_frame,
    write_frame,
)
from solver.milp.optimiser import Reached, Solution


def good(question: OptimiserQuestion) -> bytes:
    reached = tuple(Reached(0.0, 0.0) for _ in question.program.objectives)
    return encode(OptimiserAnswer(Solution(question.start, reached, f"fake {os.getpid()}")))


def with_values(change: Callable[[OptimiserQuestion], list[float]]) -> Callable[[OptimiserQuestion], bytes]:
    def answer(question: OptimiserQuestion) -> bytes:
        reached = tuple(Reached(0.0, 0.0) for _ in question.program.objectives)
        return encode(OptimiserAnswer(Solution(np.array(change(question), dtype=np.float64), reached, "fake")))

    return answer


def hang(_: OptimiserQuestion) -> bytes:
    time.sleep(600)
    return b""


def crash(_: OptimiserQuestion) -> bytes:
    os.abort()


def eat_memory(_: OptimiserQuestion) -> bytes:
    try:
        hoard = bytearray(64 << 30)
    except MemoryError:
        sys.exit("out of memory")
    return bytes(hoard[:1])


def truncate(_: OptimiserQuestion) -> bytes:
    sys.stdout.buffer.write(b"\0\0\0\0\0\0\0\x09half")
    sys.stdout.buffer.flush()
    sys.exit(0)


def announce_too_much(_: OptimiserQuestion) -> bytes:
    sys.stdout.buffer.write(b"\x7f" * 8)
    sys.stdout.buffer.flush()
    return hang(_)


ACTS: dict[str, Callable[[OptimiserQuestion], bytes]] = {
    "good": good,
    "hang": hang,
    "crash": crash,
    "eat-memory": eat_memory,
    "truncate": truncate,
    "announce-too-much": announce_too_much,
    "garbage": lambda _: b"\xc1garbage",
    "odd-bytes": lambda q: good(q).replace(q.start.tobytes(), b"\0" * (len(q.start.tobytes()) - 8) + b"\xff" * 8),
    "too-short": with_values(lambda q: [*q.start][:-1]),
    "too-long": with_values(lambda q: [*q.start, 0.0]),
    "nan": with_values(lambda q: [float("nan"), *q.start[1:]]),
    "infinite": with_values(lambda q: [float("inf"), *q.start[1:]]),
    "below-bounds": with_values(lambda q: [-0.01, *q.start[1:]]),
    "above-bounds": with_values(lambda q: [10.01, *q.start[1:]]),
    "fraction": with_values(lambda q: [0.5, *q.start[1:]]),
    "breaks-row": with_values(lambda q: [10.0, 10.0]),
}


def main() -> None:
    name, well = sys.argv[1], int(sys.argv[2])
    if name == "mute":
        time.sleep(600)
    if name == "deaf":
        write_frame(sys.stdout.buffer, READY)
        time.sleep(600)
    write_frame(sys.stdout.buffer, READY)
    for number in range(1_000):
        question = decode(read_frame(sys.stdin.buffer), OptimiserQuestion)
        write_frame(sys.stdout.buffer, (good if number < well else ACTS[name])(question))


if __name__ == "__main__":
    main()
