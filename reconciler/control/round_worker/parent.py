"""The control plane's side: has rounds of large clusters decided, and judged, by a worker, which is sent what has changed.

The worker is started beside the first pass, kept between rounds, and ended once it fails, falls silent or says what can't be; the
round is then decided in this process. One thread talks with it, as with the optimiser.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic
from types import TracebackType
from typing import Final, Self, TypeVar

from reconciler.control.control import Concluded, RoundWorkerError, RoundWorkerLostError, Solve, Solved
from reconciler.control.optimiser import KillableOptimiser
from reconciler.control.optimiser.child_process import ChildProcess, KeptChild
from reconciler.control.optimiser.heap import give_back
from reconciler.control.optimiser.wire import WireError, read_frame, write_frame
from reconciler.control.queue_use import QueueUses
from reconciler.control.recording import solver_with
from reconciler.control.round_worker.messages import (
    ANSWER_BYTES_MAX,
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
    message_of,
)
from reconciler.model.clock import Clock, SystemClock
from solver.model.cluster import Node
from solver.model.snapshot import Snapshot
from solver.model.snapshot_patch import patch_between
from solver.plan.plan import Bind, Evict, Grow, Nominate, Plan, Reserve, Shrink, Unreserve
from solver.plan.violation import Violation
from solver.policy.policy import Policy

ROUND_CHILD: Final = (sys.executable, "-m", "reconciler.control.round_worker.child")

FROM_GPUS: Final = 8_000
"""Rounds of smaller clusters are decided in the process of the control plane: see docs/decisions/0019."""

SILENT_S: Final = 20.0
"""A worker that decides says so each second. One that is not heard of for so long hangs."""

ROUND_S_MAX: Final = 120.0
"""For both parts of a round. Less than half of what a pass may take, so that the leader can still decide it."""

RESTS_MAX: Final = 64
"""Rounds decided without a worker after many were lost in a row, at most."""

Message = TypeVar("Message", RoundPart, RoundJudgement)


@dataclass(slots=True)
class AskedRound:
    """A round that a worker is asked for: what it has said of it, and when it was last heard of.

    `uses`: what it says of queues; `deed`: the part that came first; `is_judged`: it was judged there.
    """

    snapshot: Snapshot
    policy: Policy
    until_s: float
    said: SimpleQueue[RoundMessage | Exception] = field(default_factory=SimpleQueue)
    heard_s: float = math.inf
    uses: QueueUses = field(default_factory=Future)
    deed: Plan | None = None
    is_judged: bool = False

    def refuse_strange(self, plan: Plan) -> None:
        """Raises WireError for a plan that is of another round, or speaks of what is not there. Whether it is lawful was
        judged where it was made, and what it takes is judged by the ledger.
        """
        if plan.snapshot != self.snapshot.digest:
            raise WireError(f"answered to snapshot {plan.snapshot}, not {self.snapshot.digest}")
        if plan.policy != self.policy.digest:
            raise WireError(f"answered under policy {plan.policy}, not {self.policy.digest}")
        if self.deed is None:
            jobs = {job.name for job in self.snapshot.jobs}
            for step in plan.steps:
                if isinstance(step, Bind | Nominate | Grow | Shrink | Evict) and step.job not in jobs:
                    raise WireError(f"answered with a step of {step.job}, which is no job")
            self.deed = plan
            return
        steps = len(self.deed.steps)
        is_same = plan.steps[:steps] == self.deed.steps
        if not is_same or not all(isinstance(step, Reserve | Unreserve) for step in plan.steps[steps:]):
            raise WireError("answered with a plan that does something else than its deed")


class WorkerChecker:
    """Implements RoundChecker: what the worker found, in the order in which it is asked for."""

    def __init__(self, next_found: Callable[[], tuple[Violation, ...]]) -> None:
        self._next_found = next_found

    def deed_violations(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:  # noqa: ARG002  (RoundChecker's)
        """Of the first part. Raises RoundWorkerError, RoundWorkerLostError."""
        return self._next_found()

    def conclusion_violations(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:  # noqa: ARG002  (as above)
        """Of the second part. Raises as above."""
        return self._next_found()

    def findings(self, snapshot: Snapshot, policy: Policy, plan: Plan) -> tuple[Violation, ...]:  # noqa: ARG002  (as above)
        """Of both. Raises as above."""
        return self._next_found()


class RoundWorker:
    """Implements Solve. Close it, or use it as a context manager. One thread decides rounds.

    `optimiser` and `clock`: of rounds that are decided in this process, which are all those of clusters with less than `from_gpus`
    GPUs. `report` hears what the worker has to say to people. `silent_s`, `round_s_max`: seconds after which a worker is given up.
    """

    def __init__(
        self,
        optimiser: KillableOptimiser,
        clock: Clock = SystemClock(),
        from_gpus: int = FROM_GPUS,
        command: Sequence[str] = ROUND_CHILD,
        report: Callable[[str], None] = lambda _: None,
        silent_s: float = SILENT_S,
        round_s_max: float = ROUND_S_MAX,
    ) -> None:
        self._optimiser, self._clock = optimiser, clock
        self._from_gpus, self._report = from_gpus, report
        self._silent_s, self._round_s_max = silent_s, round_s_max
        self._child = KeptChild(command, "round worker")
        self._here: Solve | None = None
        self._known: tuple[ChildProcess, Snapshot, Policy] | None = None
        self._ahead: AskedRound | None = None
        self._losses = self._rests = 0

    def prepare(self, nodes: Collection[Node]) -> None:
        """Start what a round of so many GPUs is decided with, beside what is done until then. A failure shows with the round."""
        if self._is_large(nodes) and not self._rests:
            self._child.submit(self._child.begun)
        elif self._here is None:
            self._optimiser.start()

    def ask(self, snapshot: Snapshot, policy: Policy) -> None:
        """Begin the round that is decided next, if a worker does that."""
        if self._is_large(snapshot.nodes) and not self._rests:
            self._ahead = self._asked(snapshot, policy)

    def __call__(self, snapshot: Snapshot, policy: Policy) -> Solved:
        """Have a round decided. Raises RoundWorkerLostError: it can be decided here; RoundWorkerError: the solver failed there."""
        if not self._is_large(snapshot.nodes):
            return self._decided_here(snapshot, policy)
        self._here = None
        if self._rests:
            self._rests -= 1
            raise RoundWorkerLostError("the round worker was lost, and rests", self._fresh())
        asked = self._asked(snapshot, policy)
        deed = self._next_part(asked)
        checker = WorkerChecker(lambda: self._next(asked, RoundJudgement).found)
        return Solved(deed, lambda: self._next_part(asked), checker, asked.uses)

    def _asked(self, snapshot: Snapshot, policy: Policy) -> AskedRound:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead.snapshot is snapshot and ahead.policy is policy:
            return ahead
        if ahead is not None:
            self._child.submit(self._tell_loss, ahead)
        asked = AskedRound(snapshot, policy, monotonic() + self._round_s_max)
        self._child.submit(self._talk, asked)
        return asked

    def close(self) -> None:
        """End the worker, also one that is just being started."""
        self._child.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _is_large(self, nodes: Collection[Node]) -> bool:
        return sum(len(node.gpus) for node in nodes) >= self._from_gpus

    def _decided_here(self, snapshot: Snapshot, policy: Policy) -> Solved:
        """The round of a small cluster, which needs no worker."""
        if self._here is None:
            self._here = self._fresh()
            self._child.submit(self._child.end)
        return self._here(snapshot, policy)

    def _fresh(self) -> Solve:
        """Decides rounds in this process. What it keeps for the next one is as large as a round."""
        self._optimiser.warm_up()
        return solver_with(self._optimiser, self._clock)

    def _next_part(self, asked: AskedRound) -> Concluded:
        """Raises RoundWorkerLostError, RoundWorkerError."""
        part = self._next(asked, RoundPart)
        try:
            asked.refuse_strange(part.plan)
        except WireError as error:
            raise self._lost(asked, error) from error
        give_back()
        return Concluded(part.plan, part.solution)

    def _next(self, asked: AskedRound, kind: type[Message]) -> Message:
        """What the worker says next. Raises RoundWorkerLostError, RoundWorkerError."""
        said = self._heard(asked)
        if isinstance(said, RoundFailure):
            raise RoundWorkerError(said.message)
        if not isinstance(said, kind):
            strange = WireError(f"answered with a {type(said).__name__} where a {kind.__name__} was due")
            raise self._lost(asked, said if isinstance(said, Exception) else strange)
        asked.is_judged = asked.is_judged or isinstance(said, RoundJudgement)
        return said

    def _heard(self, asked: AskedRound) -> RoundMessage | Exception:
        """What comes next, if anything does while the worker lives and the round may take."""
        while True:
            until_s = min(asked.until_s, asked.heard_s + self._silent_s)
            try:
                # What it is asked may be on its way still: how long it may be silent counts from its arrival.
                return asked.said.get(timeout=max(0.0, min(until_s - monotonic(), self._silent_s)))
            except Empty:
                if monotonic() >= min(asked.until_s, asked.heard_s + self._silent_s):
                    return WireError(
                        f"gave no answer within {self._silent_s:g} s of the last sign of it, or took too long"
                    )

    def _lost(self, asked: AskedRound, why: Exception) -> RoundWorkerLostError:
        """What to do without the worker, which is ended.

        After each loss in a row twice as many rounds are decided here, so that a worker that can't live costs little. This round is
        one of them if it has not been acted on yet.
        """
        self._child.kill()
        self._child.submit(self._child.end)
        self._losses += 1
        self._rests = min(2**self._losses, RESTS_MAX) - (1 if asked.is_judged else 2)
        return RoundWorkerLostError(f"the round worker {why}", self._fresh())

    # What follows runs in the thread that talks with the worker.

    def _talk(self, asked: AskedRound) -> None:
        try:
            child = self._child.begun()
            write_frame(child.questions, frame_of(self._question(child, asked)))
            asked.heard_s = monotonic()
            _ = asked.snapshot.digest  # Now, while the worker decides: its answer is compared with it.
            while not isinstance(message := message_of(read_frame(child.answers, ANSWER_BYTES_MAX)), RoundOver):
                asked.heard_s = monotonic()
                if isinstance(message, RoundNote):
                    self._report(message.message)
                elif isinstance(message, RoundUses):
                    is_fit = len(message.uses) == len(asked.policy.queues)
                    asked.uses.set_result(message.uses if is_fit else None)
                elif not isinstance(message, Heartbeat):
                    asked.said.put(message)
            self._losses = 0
            asked.said.put(message)
        except Exception as error:  # noqa: BLE001  (it is raised where the round is waited for)
            self._child.end()
            asked.said.put(WireError(f"can't be reached: {error}") if isinstance(error, OSError) else error)
        finally:
            if not asked.uses.done():
                asked.uses.set_result(None)

    def _tell_loss(self, asked: AskedRound) -> None:
        """Say what the worker died of in a round that nothing waits for any more: the next one begins another silently."""
        while not asked.said.empty():
            said = asked.said.get()
            if isinstance(said, Exception):
                self._report(
                    f"the round worker {said}, in a round that was not wanted any more; another takes its place"
                )

    def _question(self, child: ChildProcess, asked: AskedRound) -> RoundQuestion:
        """What the worker does not know yet."""
        known, self._known = self._known, (child, asked.snapshot, asked.policy)
        if known is None or known[0] is not child:
            return RoundQuestion(snapshot=asked.snapshot, policy=asked.policy)
        _, snapshot, policy = known
        changed = None if policy.digest == asked.policy.digest else asked.policy
        return RoundQuestion(patch=patch_between(snapshot, asked.snapshot), policy=changed)
