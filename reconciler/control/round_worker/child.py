"""The process that decides rounds: reads what changed from standard input, and answers on standard output, part by part."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import IO, Final

from reconciler.control.control import Solve
from reconciler.control.fallback import InProcessChecker, told_of, where_of
from reconciler.control.garbage_collection import seldom
from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.optimiser.wire import READY, WireError, read_frame, write_frame
from reconciler.control.queue_use import queue_uses
from reconciler.control.recording import solver_with
from reconciler.control.round_worker.messages import (
    Heartbeat,
    RoundFailure,
    RoundJudgement,
    RoundMessage,
    RoundNote,
    RoundOver,
    RoundPart,
    RoundQuestion,
    RoundUses,
    frame_of,
    question_of,
)
from solver.model.snapshot import Snapshot
from solver.model.snapshot_patch import patched
from solver.policy.policy import Policy

HEARTBEAT_S: Final = 1.0

Say = Callable[[RoundMessage], None]


class AnswerStream:
    """Where answers go, from any thread."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._one_at_a_time = Lock()

    def say(self, message: RoundMessage) -> None:
        """Send it. Raises BrokenPipeError: there is no control plane any more."""
        self.send(frame_of(message))

    def send(self, frame: bytes) -> None:
        """The same of what is a frame already."""
        with self._one_at_a_time:
            write_frame(self._stream, frame)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Say now and then, beside what the block does, that it is being done."""
        over = Event()

        def beat() -> None:
            while not over.wait(HEARTBEAT_S):
                try:
                    self.say(Heartbeat())
                except OSError:
                    os._exit(0)  # What is being decided is for nobody.

        thread = Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


class RoundDecider:
    """Decides round after round, each on what the one before left."""

    def __init__(self, solve: Solve) -> None:
        self._solve = solve
        self._snapshot: Snapshot | None = None
        self._policy: Policy | None = None

    def answer(self, question: RoundQuestion, say: Say) -> None:
        """Decide one round, and say what comes of it as it does. Raises WireError for a question that can't be put together."""
        snapshot, policy = self._put_together(question)
        try:
            self._decide(snapshot, policy, say)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  (the solver does no I/O: whatever it raises is a defect of its own)
            say(RoundFailure(told_of(error)))

    def _put_together(self, question: RoundQuestion) -> tuple[Snapshot, Policy]:
        try:
            if question.patch is not None and self._snapshot is not None:
                self._snapshot = patched(self._snapshot, question.patch)
        except ValueError as error:
            raise WireError(f"did not send what changed since the round before: {error}") from error
        self._snapshot = question.snapshot or self._snapshot
        self._policy = question.policy or self._policy
        if self._snapshot is None or self._policy is None:
            raise WireError("did not send a whole snapshot and a policy first")
        return self._snapshot, self._policy

    def _decide(self, snapshot: Snapshot, policy: Policy, say: Say) -> None:
        checker, solved = InProcessChecker(), self._solve(snapshot, policy)
        say(RoundPart(*solved.deed))
        found = checker.deed_violations(snapshot, policy, solved.deed.plan)
        say(RoundJudgement(found))
        if found:
            return
        plan, solution = solved.conclude()
        say(RoundPart(plan, solution))
        found = checker.conclusion_violations(snapshot, policy, plan)
        say(RoundJudgement(found))
        if found:
            return
        try:
            say(RoundJudgement(checker.findings(snapshot, policy, plan)))
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001  (as above)
            say(RoundFailure(where_of(error)))
        say(RoundUses(tuple(use for _, use in queue_uses(snapshot, policy))))


def serve(decider: RoundDecider, questions: IO[bytes], answers: AnswerStream) -> None:
    """Answer until the other side closes the stream. Raises WireError for what it says that makes no sense.

    A SIGTERM to all processes of a service is for the control plane to hear, which still finishes its pass.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            frame = read_frame(questions)
        except WireError:
            return
        with answers.beating():
            decider.answer(question_of(frame), answers.say)
        answers.say(RoundOver())


def main() -> None:
    """Decide rounds with the program. What the solver prints goes to standard error, so that it can't garble an answer."""
    seldom()
    # A control plane that has gone needs no answer.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as stream:
        os.dup2(2, 1)
        answers = AnswerStream(stream)
        with KillableOptimiser(report=lambda message: answers.say(RoundNote(message))) as optimiser:
            answers.send(READY)
            with answers.beating():
                optimiser.warm_up()
            serve(RoundDecider(solver_with(optimiser)), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
