"""A round worker that does what its first argument says: decides well the first N rounds (second argument), then misbehaves."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import IO

import msgspec

from reconciler.control.control import Solved
from reconciler.control.optimiser.wire import READY
from reconciler.control.recording import solver_with
from reconciler.control.round_worker.child import AnswerStream, RoundDecider, serve
from reconciler.control.round_worker.messages import Heartbeat, RoundJudgement, RoundMessage, RoundPart
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName
from solver.plan.violation import Violation
from solver.policy.policy import Policy


def killed(message: RoundMessage) -> RoundMessage:
    os.kill(os.getpid(), signal.SIGKILL)
    return message


def stopped(message: RoundMessage) -> RoundMessage:
    os.kill(os.getpid(), signal.SIGSTOP)
    return message


def endless(message: RoundMessage) -> RoundMessage:
    time.sleep(600)
    return message


def slow(message: RoundMessage) -> RoundMessage:
    time.sleep(6)
    return message


def with_plan(**changes: object) -> Callable[[RoundMessage], RoundMessage]:
    def other(message: RoundMessage) -> RoundMessage:
        assert isinstance(message, RoundPart)
        return msgspec.structs.replace(message, plan=msgspec.structs.replace(message.plan, **changes))

    return other


def of_unknown_job(message: RoundMessage) -> RoundMessage:
    assert isinstance(message, RoundPart)
    steps = (msgspec.structs.replace(message.plan.steps[0], job=JobName("nobody")),)
    return with_plan(steps=steps)(message)


def judged(*found: Violation) -> Callable[[RoundMessage], RoundMessage]:
    return lambda _: RoundJudgement(found)


BROKEN = judged(Violation("S1", "job", "is where another is"))

ACTS: dict[str, tuple[int, Callable[[RoundMessage], RoundMessage]]] = {
    "killed": (0, killed),
    "stopped": (0, stopped),
    "endless": (0, endless),
    "slow": (0, slow),
    "other-snapshot": (0, with_plan(snapshot="sha256:other")),
    "other-policy": (0, with_plan(policy="sha256:other")),
    "unknown-job": (0, of_unknown_job),
    "out-of-turn": (0, judged()),
    "killed-in-check": (1, killed),
    "breaks-rules": (1, BROKEN),
    "killed-after-deed": (2, killed),
    "does-less": (2, with_plan(steps=())),
    "says-wrong": (3, BROKEN),
}
"""What is done to which of the parts and judgements of a round."""


class LyingStream(AnswerStream):
    """Says other things than it is told to."""

    def __init__(self, stream: IO[bytes], act: str, well: int) -> None:
        super().__init__(stream)
        self.act, self.well, self.parts = act, well, 0

    def say(self, message: RoundMessage) -> None:
        if isinstance(message, RoundPart | RoundJudgement):
            self.parts += 1
            if self.well <= 0 and self.act == "garbage":
                self.send(b"\xc1garbage")
            if self.well <= 0 and self.act in ACTS and self.parts == ACTS[self.act][0] + 1:
                message = ACTS[self.act][1](message)
        elif not isinstance(message, Heartbeat):
            self.well, self.parts = self.well - 1, 0
        super().say(message)


def main() -> None:
    name, well = sys.argv[1], int(sys.argv[2])
    if name == "hurried":
        # HiGHS takes a second to import, which the others do without.
        from tests.replay.test_under_load import Hurried

        solve_once = solver_with(Hurried(random.Random(1)))
    else:
        solve_once = solver_with(None)
    answers = LyingStream(sys.stdout.buffer, name, well)

    def solve(snapshot: Snapshot, policy: Policy) -> Solved:
        if name == "fails" and answers.well <= 0:
            raise KeyError("a column that is not there")
        return solve_once(snapshot, policy)

    answers.send(READY)
    serve(RoundDecider(solve), sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
