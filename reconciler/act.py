"""Makes settlements and plan steps true: the ledger first, then the backend, each step idempotent and under one epoch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from reconciler.backend import BackendUnreachableError, Epoch, Order, StopGang
from reconciler.causes import names_of, nodes_of, why_evicted
from reconciler.control import ControlPlane
from reconciler.jobs.ground import Ground, gpus_of
from reconciler.jobs.orders import order_of
from reconciler.jobs.outcome import outcome_of
from reconciler.jobs.record import JobOutcome
from reconciler.jobs.replicas import RESTART_DEADLINE
from reconciler.jobs.settle import STOP_GRACE, settlements
from reconciler.jobs.settlements import (
    AskToLeave,
    AskToStop,
    Cancel,
    Confirmation,
    ConfirmGrown,
    ConfirmRunning,
    ConfirmShrunk,
    Cull,
    Fail,
    Forget,
    GiveBack,
    Restart,
    Send,
    Settlement,
    Succeed,
    TimeOut,
)
from reconciler.jobs.sighted import Sighted
from reconciler.observe import records_of
from reconciler.partition import Partitioner
from reconciler.store.protocols import Claim, ClaimRefusedError, Event, PastUse
from solver.plan.plan import (
    Bind,
    Evict,
    Grow,
    Nominate,
    Plan,
    Release,
    Repartition,
    Reserve,
    Shrink,
    Step,
    Unreserve,
    Withdraw,
)
from solver.rules.departures import clocks_of
from solver.rules.policy import Policy
from solver.rules.usage import accrued, holds_of
from solver.world.cluster import DeviceId, Node
from solver.world.inflight import Intent, Reservation
from solver.world.quantities import Duration
from solver.world.snapshot import Snapshot
from solver.world.workload import JobName, TaskPlacement


@dataclass(frozen=True, slots=True)
class Leader:
    """A control plane that leads under one epoch. Every method raises StaleEpochError once it no longer does."""

    plane: ControlPlane
    epoch: Epoch

    def settle(self, sighted: Sighted) -> int:
        """Make true what follows from what the backend reports; returns how much that was."""
        partitioned = Partitioner(self.plane, self.epoch).settle(sighted)
        claims, intents = self.plane.ledger.claims(), self.plane.ledger.intents()
        records, ground = records_of(self.plane, claims), Ground(sighted.nodes, self._changing())
        decided = tuple(settlements(records, claims, intents, sighted, self.plane.clock.now(), ground))
        for settlement in decided:
            self._apply(settlement)
        return partitioned + len(decided)

    def accrue(self, policy: Policy, declared: Iterable[Node]) -> None:
        """Bring past use up to date, where the policy lets it count: before a pass changes who holds what."""
        half_life = policy.scheduling.usage_half_life
        if half_life is None:
            return
        past, now = self.plane.ledger.past_use(), self.plane.clock.now()
        types = {node.name: node.gpu_type for node in declared}
        holds = [
            hold
            for claim in self.plane.ledger.claims()
            for hold in holds_of(self.plane.jobs.job(claim.job).spec.queue, claim.tasks, types, claim.since)
        ]
        usage = accrued(past.usage, past.at, holds, now, half_life)
        self.plane.ledger.keep_past_use(self.epoch, PastUse(usage, now))

    def wind(self, snapshot: Snapshot, policy: Policy, commit: str) -> Snapshot:
        """Keep the clocks of limits that are broken, and put them into the snapshot: they outlive this process."""
        before, clocks = snapshot.in_flight.convergence, clocks_of(snapshot, policy, commit)
        if clocks == before:
            return snapshot
        self.plane.ledger.keep_clocks(self.epoch, clocks)
        for clock in sorted(set(clocks) - set(before), key=lambda clock: clock.queue):
            limit = f"holds more than its max of {clock.limit} {clock.gpu_type} since {clock.commit[:12]}"
            self._note("limit-broken", clock.queue, f"{limit}; it is to be kept by {clock.deadline}")
        for clock in sorted(set(before) - set(clocks), key=lambda clock: clock.queue):
            self._note("limit-kept", clock.queue, f"nobody need leave for the max of {clock.limit} {clock.gpu_type}")
        return msgspec.structs.replace(
            snapshot, in_flight=msgspec.structs.replace(snapshot.in_flight, convergence=clocks)
        )

    def act(self, plan: Plan) -> int:
        """Make a plan's steps true; returns how many the ledger refused, which the next pass then sees."""
        refused, unmade = 0, set[DeviceId]()
        for step in plan.steps:
            if isinstance(step, Bind | Grow) and unmade & gpus_of(step.tasks):
                self._note("bind-refused", step.job, "a GPU that it needs may not be partitioned anew")
                refused += 1
            elif not self._take(step):
                refused += 1
                unmade |= {step.device} if isinstance(step, Repartition) else set()
        return refused

    def _take(self, step: Step) -> bool:
        match step:
            case Bind():
                return self._bind(step)
            case Release(job, attempt):
                self._ask_to_stop(job, attempt, "it did not become ready in time")
            case Evict():
                self._evict(step)
            case Nominate() | Withdraw() | Reserve() | Unreserve():
                self._keep_free(step)
            case Shrink():
                self._shrink(step)
            case Grow():
                return self._grow(step)
            case Repartition():
                return Partitioner(self.plane, self.epoch).ask(step)
        return True

    def _keep_free(self, step: Nominate | Withdraw | Reserve | Unreserve) -> None:
        match step:
            case Nominate():
                self._nominate(step)
            case Withdraw(job):
                self.plane.ledger.withdraw(self.epoch, job)
                self._note("withdrawn", job, "what it was promised is not to be had any more")
            case Reserve(job, tasks, start, until):
                self.plane.ledger.reserve(self.epoch, Reservation(job, tasks, start, until))
                self._note("reserved", job, f"{nodes_of(tasks) or 'nothing'} from {start}")
            case Unreserve(job):
                self.plane.ledger.unreserve(self.epoch, job)
                self._note("unreserved", job, "nothing is held for it any more")

    def _evict(self, step: Evict) -> None:
        now = self.plane.clock.now()
        whom, until = step.beneficiary, now.after(step.grace)
        intent = Intent("stop", step.job, step.attempt, now, until, beneficiary=whom, evicts=True)
        self._stop(intent, why_evicted(step))

    def _shrink(self, step: Shrink) -> None:
        now = self.plane.clock.now()
        until = now.after(step.grace)
        intent = Intent("shrink", step.job, step.attempt, now, until, step.tasks, step.beneficiary)
        self._ask_to_leave(intent, why_evicted(step))

    def _ask_to_leave(self, intent: Intent, cause: str) -> None:
        self.plane.ledger.ask(self.epoch, intent)
        self._note("asked-to-shrink", intent.job, f"{names_of(intent.tasks)} leave: {cause}")
        # What the ledger says is what is ordered: it keeps a shrink that it knew before, and none of a gang that has ended.
        claim = next((claim for claim in self.plane.ledger.claims() if claim.job == intent.job), None)
        if claim is not None and intent in self.plane.ledger.intents():
            self._send(order_of(intent, claim, self.plane.jobs.job(intent.job)))

    def _grow(self, step: Grow) -> bool:
        now = self.plane.clock.now()
        intent = Intent("grow", step.job, step.attempt, now, now.after(step.deadline), step.tasks)
        try:
            claim = self.plane.ledger.grow(self.epoch, intent)
        except ClaimRefusedError as refused:
            self._note("grow-refused", step.job, str(refused))
            return False
        self._note("grows", step.job, f"{names_of(step.tasks)} join on {nodes_of(step.tasks)}")
        self._begin(order_of(intent, claim, self.plane.jobs.job(step.job)), step.tasks)
        return True

    def _nominate(self, step: Nominate) -> None:
        now = self.plane.clock.now()
        intent = Intent("nominate", step.job, step.attempt, now, now.after(step.deadline), step.tasks)
        self.plane.ledger.nominate(self.epoch, intent)
        self._note("promised", step.job, f"{nodes_of(step.tasks)}, once they are free")

    def _bind(self, step: Bind) -> bool:
        now = self.plane.clock.now()
        intent = Intent("start", step.job, step.attempt, now, now.after(step.deadline), step.tasks)
        claim = Claim(
            step.job, step.attempt, step.tasks, since=now, time_limit=step.time_limit, idle_limit=step.idle_limit
        )
        try:
            self.plane.ledger.claim(self.epoch, claim, intent)
        except ClaimRefusedError as refused:
            self._note("bind-refused", step.job, str(refused))
            return False
        self._note("bound", step.job, f"attempt {step.attempt} on {nodes_of(step.tasks)}")
        self._begin(order_of(intent, claim, self.plane.jobs.job(step.job)), step.tasks)
        return True

    def _apply(self, settlement: Settlement) -> None:
        match settlement:
            case ConfirmRunning() | ConfirmGrown() | ConfirmShrunk():
                self._confirm(settlement)
            case AskToStop() | AskToLeave() | Restart():
                self._ask(settlement)
            case Succeed() | Fail() | TimeOut() | Cull() | Cancel():
                self._finish(settlement.job, outcome_of(settlement, self.plane.clock.now(), self.plane.logs))
            case GiveBack(job, attempt):
                self.plane.ledger.release(self.epoch, job, attempt, self.plane.clock.now())
                self._note("released", job, f"nothing of attempt {attempt} runs")
            case Forget(job, attempt):
                self._forget(job, attempt)
            case Send(order):
                self._send(order)

    def _confirm(self, seen: Confirmation) -> None:
        match seen:
            case ConfirmRunning(job, attempt, at, unwatched):
                self.plane.ledger.confirm_running(self.epoch, job, attempt, at)
                self._note("running", job, f"all tasks of attempt {attempt} run")
                if unwatched:
                    told = "nobody says what its tasks do: its idle limit is not kept as long as that is so"
                    self._note("unwatched", job, told)
            case ConfirmGrown(job, attempt):
                self.plane.ledger.confirm_grown(self.epoch, job, attempt)
                self._note("grown", job, f"all tasks that joined attempt {attempt} run")
            case ConfirmShrunk(job, attempt):
                self.plane.ledger.confirm_shrunk(self.epoch, job, attempt, self.plane.clock.now())
                self._note("shrunk", job, f"nothing runs of the tasks that were to leave attempt {attempt}")

    def _ask(self, wanted: AskToStop | AskToLeave | Restart) -> None:
        match wanted:
            case AskToStop(job, attempt, cause, culls):
                self._ask_to_stop(job, attempt, cause, culls)
            case AskToLeave(job, attempt, tasks, cause):
                now = self.plane.clock.now()
                self._ask_to_leave(Intent("shrink", job, attempt, now, now.after(STOP_GRACE), tasks), cause)
            case Restart():
                self._restart(wanted)

    def _restart(self, due: Restart) -> None:
        now = self.plane.clock.now()
        intent = Intent("grow", due.job, due.attempt, now, now.after(RESTART_DEADLINE), due.tasks)
        claim = self.plane.ledger.restart(self.epoch, intent)
        self._note("restarts", due.job, f"{names_of(due.tasks)} begin again on {nodes_of(due.tasks)}")
        self._begin(order_of(intent, claim, self.plane.jobs.job(due.job)), due.tasks)

    def _ask_to_stop(self, job: JobName, attempt: int, cause: str, culls: bool = False) -> None:
        now = self.plane.clock.now()
        self._stop(Intent("stop", job, attempt, now, now.after(STOP_GRACE), culls=culls), cause)

    def _stop(self, intent: Intent, cause: str) -> None:
        self.plane.ledger.ask(self.epoch, intent)
        self._note("asked-to-stop", intent.job, cause)
        self._send(StopGang(intent.job, intent.attempt, Duration(intent.deadline - intent.asked_at)))

    def _finish(self, job: JobName, outcome: JobOutcome) -> None:
        attempt = self.plane.ledger.attempts().get(job, 0)
        self.plane.jobs.finish(self.epoch, job, msgspec.structs.replace(outcome, attempt=attempt))
        self._note(outcome.state, job, outcome.message)

    def _begin(self, order: Order, tasks: Iterable[TaskPlacement]) -> None:
        """Start tasks, unless a GPU of theirs is being partitioned: then a later pass does, once it is."""
        if not gpus_of(tasks) & self._changing():
            self._send(order)

    def _changing(self) -> set[DeviceId]:
        return {asked.device for asked in self.plane.ledger.repartitions()}

    def _send(self, order: Order) -> None:
        try:
            self.plane.backend.submit(order, self.epoch)
        except BackendUnreachableError as unknown:
            # Its intent stays in the ledger, so a later pass sends it again until its effect is seen.
            self._note("unanswered", order.job, f"{order.id}: {unknown}")

    def _forget(self, job: JobName, attempt: int) -> None:
        try:
            self.plane.backend.forget(job, attempt, self.epoch)
        except BackendUnreachableError as unknown:
            # The backend reports the attempt again, and a later pass sees that nobody claims it.
            self._note("unanswered", job, f"forget/{job}/{attempt}: {unknown}")

    def _note(self, kind: str, subject: str, cause: str) -> None:
        self.plane.history.record_event(Event(self.plane.clock.now(), kind, subject, cause, self.plane.holder))
