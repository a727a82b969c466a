"""Bugs seeded on purpose: a harness that finds nothing in a broken control plane would prove nothing about a sound one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import msgspec

from hack.crash.doors import Gates
from hack.crash.harness import run_seed
from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.cluster import SimulatedCluster, SimulatedGpus, SimulatedTells
from reconciler.control import plan_executor
from reconciler.control.leader_actions import LeaderActions
from reconciler.control.partition import GpuPartitioner
from reconciler.control.starts import StartExecutor
from reconciler.lifecycle.jobs import decisions, failures, standstill
from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports, TaskKey
from reconciler.lifecycle.jobs.claim_context import ClaimContext
from reconciler.lifecycle.jobs.device_readiness import DeviceReadiness
from reconciler.lifecycle.jobs.retries import retry_of
from reconciler.lifecycle.jobs.settlements import Cancel, Fail, ForgetAttempt, GiveBack, Send, Settlement, Succeed
from reconciler.lifecycle.jobs.standstill import Standstill
from reconciler.protocols.backend import (
    BackendUnreachableError,
    Epoch,
    Order,
    PartitionGpu,
    StartGang,
    StopTasks,
    TellGang,
)
from reconciler.server import cluster_time
from reconciler.store import database
from reconciler.store.claims import NextAttempts
from reconciler.store.ledger import SqlLedger
from solver.model.cluster import DeviceId
from solver.model.quantities import Instant
from solver.model.workload import JobName
from solver.plan.plan import Bind

SEEDS_MAX = 100
"""Within how many seeds each bug must be found."""

Patches = Iterable[Any]


def the_stores_ignore_the_epoch() -> Patches:
    """A leader that was replaced goes on writing."""
    yield mock.patch.object(database, "check_epoch")


def failures_before_are_forgotten() -> Patches:
    """Every failure is the first."""
    yield mock.patch.object(failures, "retry_of", lambda job, mishap, _, policy: retry_of(job, mishap, (), policy))


def the_backend_ignores_the_epoch() -> Patches:
    """A leader that was replaced goes on giving orders."""
    yield mock.patch.object(SimulatedBackend, "_check")


def devices_are_released_before_the_stop_is_confirmed() -> Patches:
    """Asked to stop counts as stopped."""
    sound = decisions._settle_live

    def hasty(holding: ClaimContext) -> tuple[Settlement, ...]:
        return (GiveBack(holding.claim.job, holding.claim.attempt),) if holding.stopping else sound(holding)

    yield mock.patch.object(decisions, "_settle_live", hasty)


def an_unanswered_start_counts_as_refused() -> Patches:
    """The order may have arrived all the same."""

    def send(leader: LeaderActions, order: Order) -> None:
        try:
            leader.plane.backend.submit(order, leader.epoch)
        except BackendUnreachableError:
            if isinstance(order, StartGang):
                leader.plane.ledger.release(leader.epoch, order.job, order.attempt, leader.plane.clock.now())

    yield mock.patch.object(LeaderActions, "send", send)


def attempt_numbers_are_used_again() -> Patches:
    """Every start is the first."""
    yield mock.patch.object(SqlLedger, "attempts", return_value={})
    yield mock.patch.object(NextAttempts, "refuse")


def a_job_is_finished_after_its_devices_are_released() -> Patches:
    """A crash in between finds a job that waits, and runs it again."""
    yield _reordered(lambda settlement: isinstance(settlement, Succeed | Fail | Cancel))


def an_attempt_is_forgotten_before_its_job_is_finished() -> Patches:
    """A crash in between leaves nobody who knows how it ended."""
    yield _reordered(lambda settlement: not isinstance(settlement, ForgetAttempt))


def an_order_is_repeated_under_a_new_attempt_number() -> Patches:
    """The repeated start is then another start, which nobody has claimed."""
    yield _altered(_renumbered)


def a_gang_is_started_before_it_is_claimed() -> Patches:
    """A crash in between leaves tasks that hold nothing."""
    sound = StartExecutor.bind

    def bind(starts: StartExecutor, steps: Sequence[Bind], unmade: Collection[DeviceId]) -> int:
        for step in steps:
            spec = starts.plane.jobs.job(step.job).spec
            starts.send(StartGang(step.job, step.attempt, step.tasks, spec))
        return sound(starts, steps, unmade)

    yield mock.patch.object(StartExecutor, "bind", bind)


def forgetting_an_attempt_lets_it_start_again() -> Patches:
    """A start that was long on its way finds no trace of the stop."""
    sound = SimulatedBackend.forget

    def forget(backend: SimulatedBackend, job: JobName, attempt: int, epoch: Epoch) -> None:
        sound(backend, job, attempt, epoch)
        backend.cluster._attempts.pop((job, attempt), None)

    yield mock.patch.object(SimulatedBackend, "forget", forget)


def lost_orders_are_not_sent_again() -> Patches:
    """What got lost on its way is never made good."""
    yield _altered(lambda settlement: None if isinstance(settlement, Send) else settlement)


def tasks_that_were_asked_to_leave_count_as_gone() -> Patches:
    """Their devices are given away while they still run."""
    yield mock.patch.object(ClaimContext, "has_left", property(lambda holding: bool(holding.leaving)))


def a_growth_on_its_way_starts_what_was_told_to_leave() -> Patches:
    """The backend keeps no note of who was told to leave before it came."""
    sound = SimulatedCluster._leave

    def leave(cluster: SimulatedCluster, attempt: Any, order: StopTasks, at: Instant) -> None:
        sound(cluster, attempt, order, at)
        attempt.left.clear()

    yield mock.patch.object(SimulatedCluster, "_leave", leave)


def a_task_that_joins_again_is_taken_for_its_former_life() -> Patches:
    """What was reported of it before it left decides about the gang it has joined again."""
    yield mock.patch.object(AttemptReport, "of_tasks", _whatever_the_growth)


def tasks_start_before_their_gpu_is_partitioned() -> Patches:
    """The instance was claimed, and is still to be made."""
    yield mock.patch.object(DeviceReadiness, "under", return_value="there")
    yield mock.patch.object(LeaderActions, "changing", return_value=set())


def a_change_counts_as_made_once_it_is_asked_for() -> Patches:
    """The order may still be on its way, and come when somebody relies on what the GPU was."""
    sound = GpuPartitioner.settle

    def settle_and_forget(partitioner: GpuPartitioner, sighted: BackendReports) -> int:
        for asked in partitioner.plane.ledger.partitionings.in_flight():
            partitioner.plane.ledger.partitionings.end(partitioner.epoch, asked.device, asked.attempt)
        return sound(partitioner, sighted)

    yield mock.patch.object(GpuPartitioner, "settle", settle_and_forget)


def a_gpu_obeys_orders_that_are_older_than_its_last() -> Patches:
    """One that was long on its way undoes what was made since."""

    def accept(gpus: SimulatedGpus, order: PartitionGpu, at: Instant) -> None:
        gpus._cluster.schedule(gpus._cluster.soon(at), lambda then: gpus._clear(order, then))

    yield mock.patch.object(SimulatedGpus, "accept", accept)
    yield mock.patch.object(SimulatedGpus, "_is_old", return_value=False)


def what_was_told_is_told_again_when_the_order_comes_again() -> Patches:
    """Nobody notes who was told what."""
    accept, tell_task = SimulatedTells.accept, SimulatedTells._tell

    def accept_anew(tells: SimulatedTells, order: TellGang, growth: int, at: Instant) -> None:
        tells._orders.clear()
        accept(tells, order, growth, at)

    def tell_anew(tells: SimulatedTells, number: int, order: TellGang, at: Instant) -> None:
        tells._told.clear()
        tell_task(tells, number, order, at)

    yield mock.patch.object(SimulatedTells, "accept", accept_anew)
    yield mock.patch.object(SimulatedTells, "_tell", tell_anew)


def what_one_attempt_is_told_the_next_hears() -> Patches:
    """A job is told, whatever attempt of it runs."""
    sound = SimulatedTells.accept

    def accept(tells: SimulatedTells, order: TellGang, growth: int, at: Instant) -> None:
        for attempt in (order.attempt, order.attempt + 1):
            sound(tells, msgspec.structs.replace(order, attempt=attempt), growth, at)

    yield mock.patch.object(SimulatedTells, "accept", accept)


def nobody_remembers_that_a_gang_was_found_to_be_stuck() -> Patches:
    """It is found anew at every look, and nothing ever follows."""
    yield mock.patch.object(SqlLedger, "mark")


def steps_that_are_done_do_not_count() -> Patches:
    """A gang is taken for stuck when it has run for so long, whatever it does."""

    def standstill_of(holding: ClaimContext) -> Standstill | None:
        since = holding.claim.running_since
        return None if since is None else Standstill(since, holding.now, None)

    yield mock.patch.object(standstill, "standstill_of", standstill_of)


def an_act_and_its_event_are_two_writes() -> Patches:
    """A kill between the two loses the event."""
    yield mock.patch.object(Gates, "together", side_effect=lambda *_: nullcontext())


def a_process_takes_the_clock_as_it_is() -> Patches:
    """It does not go on with the time of the one before, though the clock was set meanwhile."""
    yield mock.patch.object(cluster_time, "continued", return_value=None)


BUGS: tuple[Callable[[], Patches], ...] = (
    the_stores_ignore_the_epoch,
    failures_before_are_forgotten,
    the_backend_ignores_the_epoch,
    devices_are_released_before_the_stop_is_confirmed,
    an_unanswered_start_counts_as_refused,
    attempt_numbers_are_used_again,
    a_job_is_finished_after_its_devices_are_released,
    an_attempt_is_forgotten_before_its_job_is_finished,
    an_order_is_repeated_under_a_new_attempt_number,
    a_gang_is_started_before_it_is_claimed,
    forgetting_an_attempt_lets_it_start_again,
    lost_orders_are_not_sent_again,
    tasks_that_were_asked_to_leave_count_as_gone,
    a_growth_on_its_way_starts_what_was_told_to_leave,
    a_task_that_joins_again_is_taken_for_its_former_life,
    tasks_start_before_their_gpu_is_partitioned,
    a_change_counts_as_made_once_it_is_asked_for,
    a_gpu_obeys_orders_that_are_older_than_its_last,
    what_was_told_is_told_again_when_the_order_comes_again,
    what_one_attempt_is_told_the_next_hears,
    nobody_remembers_that_a_gang_was_found_to_be_stuck,
    steps_that_are_done_do_not_count,
    a_process_takes_the_clock_as_it_is,
    an_act_and_its_event_are_two_writes,
)


@contextmanager
def seeded(bug: Callable[[], Patches]) -> Iterator[None]:
    """The control plane has this bug while the context lasts."""
    with ExitStack() as patched:
        for patch in bug():
            patched.enter_context(patch)
        yield


def caught_by(bug: Callable[[], Patches], seeds_max: int = SEEDS_MAX) -> tuple[int, str] | None:
    """The first seed that finds the bug and what it sees; None if `seeds_max` seeds find nothing."""
    with seeded(bug):
        for seed in range(seeds_max):
            outcome = run_seed(seed)
            if outcome.violations:
                return seed, outcome.violations[0]
    return None


def _altered(change: Callable[[Settlement], Settlement | None]) -> Any:
    sound = decisions.settlements

    def altered(*facts: Any) -> Iterable[Settlement]:
        changed = (change(settlement) for settlement in sound(*facts))
        return [settlement for settlement in changed if settlement is not None]

    return mock.patch.object(plan_executor, "settlements", altered)


def _reordered(comes_last: Callable[[Settlement], bool]) -> Any:
    sound = decisions.settlements
    return mock.patch.object(plan_executor, "settlements", lambda *facts: sorted(sound(*facts), key=comes_last))


def _whatever_the_growth(attempt: AttemptReport, came: Mapping[TaskKey, int]) -> AttemptReport:
    known = tuple(task for task in attempt.tasks if (task.group, task.index) in came)
    return AttemptReport(known, attempt.stopped, {key: growth for key, growth in attempt.left.items() if key in came})


def _renumbered(settlement: Settlement) -> Settlement:
    match settlement:
        case Send(StartGang() as order):
            return Send(msgspec.structs.replace(order, attempt=order.attempt + 1))
        case _:
            return settlement
