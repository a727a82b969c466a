"""The child process: answers programs on standard output that it reads from standard input."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from typing import IO

from reconciler.control.optimiser.heap import give_back
from reconciler.control.optimiser.limits import STOPS_AT, orphan_ends_after_s
from reconciler.control.optimiser.wire import (
    READY,
    OptimiserAnswer,
    OptimiserQuestion,
    WireError,
    decode,
    encode,
    read_frame,
    write_frame,
)
from solver.milp.optimiser import Optimiser


def serve(optimise: Optimiser, questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until the other side closes the stream.

    Should the parent be gone when an answer is overdue, the alarm ends this process, without needing Python for it.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    write_frame(answers, READY)
    while True:
        try:
            question = decode(read_frame(questions), OptimiserQuestion)
        except WireError:
            return
        signal.setitimer(signal.ITIMER_REAL, orphan_ends_after_s(question.effort))
        effort = replace(question.effort, time_limit_s=question.effort.time_limit_s * STOPS_AT)
        solution = optimise(question.program, question.start, effort)
        signal.setitimer(signal.ITIMER_REAL, 0)
        write_frame(answers, encode(OptimiserAnswer(solution)))
        give_back()


def main() -> None:
    """Serve HiGHS. What the solver prints goes to standard error, from its import on, so that it can't garble an answer."""
    # A parent that has gone needs no answer.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        from solver.milp.highs import optimise

        serve(optimise, sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
