"""Reviews a change in a process of its own: it computes for seconds, and rounds must not wait for it meanwhile."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Final

from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.optimiser.budget import RoundBudget
from reconciler.gitops.review.comparison import review
from reconciler.gitops.review.side import ReviewSide
from reconciler.gitops.source.errors import NotReadyToPlanError
from reconciler.model.clock import SystemClock
from reconciler.model.review_findings import Review
from solver.model.document import decode, encode
from solver.model.snapshot import Snapshot

PATIENCE_S: Final = 1_800.0
"""A review that takes longer hangs."""


def review_apart(snapshot: Snapshot, base: ReviewSide, head: ReviewSide) -> Review:
    """The same as `review`. Raises NotReadyToPlanError where the process dies or hangs: it is tried again."""
    spawn = multiprocessing.get_context("spawn")
    line, theirs = spawn.Pipe()
    process = spawn.Process(target=_answer, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        # Not as an argument: more than a pipe holds would be written for ever to a process that has died before it read that.
        line.send_bytes(encode((snapshot, base, head)))
        if not line.poll(PATIENCE_S):
            raise NotReadyToPlanError(f"{head.commit[:12]} could not be planned within {PATIENCE_S:.0f} s")
        return decode(line.recv_bytes(), Review)
    except (EOFError, OSError):
        process.join()
        raise NotReadyToPlanError(f"{head.commit[:12]} could not be planned: exit code {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
        line.close()


def _answer(line: Connection) -> None:
    """As documents: a pickled one has another digest, since defaults are told by what they are and not by what they say."""
    snapshot, base, head = decode(line.recv_bytes(), tuple[Snapshot, ReviewSide, ReviewSide])
    with KillableOptimiser() as child:
        found = review(snapshot, base, head, RoundBudget(child, SystemClock()))
    line.send_bytes(encode(found))
