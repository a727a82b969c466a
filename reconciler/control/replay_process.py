"""Replays a round in a process of its own: it computes for seconds, and neither rounds nor requests wait for it meanwhile."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from typing import Final

from reconciler.control.recording import BadRecordingError
from reconciler.control.replay import Replayed, replay
from reconciler.protocols.rounds import RoundRecord
from solver.model.document import decode, encode

PATIENCE_S: Final = 300.0
"""Seconds. No clock cuts a replay, so a round that a clock had not cut may take longer on a slower machine."""

_NICENESS: Final = 19
"""What is decided now comes first."""


class ReplayFailedError(Exception):
    """A round could not be replayed."""


def replay_apart(record: RoundRecord, patience_s: float = PATIENCE_S) -> Replayed:
    """The same as `replay`, within so many seconds. Raises ReplayFailedError."""
    spawn = multiprocessing.get_context("spawn")
    line, theirs = spawn.Pipe()
    process = spawn.Process(target=_answer, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        # Not as an argument: more than a pipe holds would be written for ever to a process that has died before it read that.
        line.send_bytes(encode(record))
        if not line.poll(patience_s):
            raise ReplayFailedError(f"it takes longer than {patience_s:.0f} s")
        found, problem = decode(line.recv_bytes(), tuple[Replayed | None, str])
    except (EOFError, OSError):
        process.join()
        raise ReplayFailedError(f"what replays it ended with exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        line.close()
    if found is None:
        raise ReplayFailedError(problem)
    return found


def _answer(line: Connection) -> None:
    # Large, and the server's own process needs none of it.
    from solver.milp.highs import optimise

    os.nice(_NICENESS)
    record = decode(line.recv_bytes(), RoundRecord)
    found: tuple[Replayed | None, str]
    try:
        found = replay(record, optimise), ""
    except BadRecordingError as error:
        found = None, str(error)
    line.send_bytes(encode(found))
