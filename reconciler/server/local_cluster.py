"""A control plane with a ledger of its own, and processes as jobs: of this machine, or of those with agents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from reconciler.access.token_file import own_token_source
from reconciler.alerts.figures import WebhookFigures
from reconciler.analysis.showback.budgets import SpendingRecords
from reconciler.api.services import PastRecords
from reconciler.control.capacity import CapacityRecorder
from reconciler.control.control import ControlPlane, PolicySource
from reconciler.control.event_settler import EventSettler
from reconciler.control.gpu_use import UseBook
from reconciler.control.idle_watch import IdleWatch
from reconciler.control.job_counts import JobTally
from reconciler.control.lending import without_lent
from reconciler.control.metrics import Metrics
from reconciler.control.narrow_rounds import NarrowRounds
from reconciler.control.round_worker import RoundWorker
from reconciler.control.runner import LoopStatus, Runner
from reconciler.control.use_summary import KnownUse, LatestUse
from reconciler.lifecycle.checkpoints.keeper import Keeper
from reconciler.lifecycle.health.figures import HealthFigures
from reconciler.model.clock import Clock
from reconciler.node.local import LocalBackend
from reconciler.node.local.folders import StateFolders
from reconciler.node.local.machine import equipment_of_this_machine
from reconciler.node.local.retention import AttemptRetention
from reconciler.node.local_driver import driver_for, gpus_of, samples_of, use_of
from reconciler.protocols.history import History
from reconciler.server.alerts import alert_services
from reconciler.server.audit_anchors import anchors_of
from reconciler.server.budget_watch import BudgetWatch
from reconciler.server.capacity_watch import CapacityWatch
from reconciler.server.checkpoints import CheckpointKeeping
from reconciler.server.cluster_time import ClusterTime, cluster_time
from reconciler.server.disk import StateDisks
from reconciler.server.execution_platform import ExecutionPlatform, TaskRunner
from reconciler.server.history_log import LoggedHistory
from reconciler.server.narrow_starts import NarrowStarts
from reconciler.server.parts import Parts, ServerThread, Worker, threads_of
from reconciler.server.policy_follower import PolicyFollower
from reconciler.server.policy_side import policy_side
from reconciler.server.pruning import Pruning
from reconciler.server.reporter import Reporter
from reconciler.server.round_process import round_worker
from reconciler.server.services import services_of
from reconciler.server.settings import Settings
from reconciler.server.store_access import opened_store, tie_to_agents, tie_to_tasks
from reconciler.server.terms import open_to_accounts, terms_of
from reconciler.server.traces import pass_traces
from reconciler.server.use_keeper import (
    UseFiguresCollector,
    UseKeeper,
    failure_teller,
    nodes_of,
    recorder_here,
    use_book,
)
from reconciler.server.wait_watch import WaitWatch
from reconciler.store.figures import StoreFigures
from reconciler.store.store import SqlStore
from solver.model.snapshot import Snapshot


def parts_on_this_machine(settings: Settings, log: FilteringBoundLogger, closing: ExitStack) -> Parts:
    """Put it together. Raises StoreUnusableError, UnsafeSecretsError, IdentityError, TokenFileError, as driver_for, policy_side."""
    folder = settings.folder
    if settings.accounts is not None:
        open_to_accounts(folder.path, settings.tasks)
    store, holder, is_shared = opened_store(settings, closing)
    clock = (time := cluster_time(store, anew=settings.take_clock)).clock
    history = LoggedHistory(store.history, log, tally := JobTally(), store.database.once_committed)

    def seen() -> Snapshot | None:
        return without_lent(runner.status.last.snapshot) if runner.status.last else None

    def wake() -> None:
        runner.wake()

    known = settings, store, history, clock, holder
    git = policy_side(*known, snapshot=seen, wake=wake, log=log, is_shared=is_shared)
    book = use_book(git.standing, clock.wall, log)
    used = KnownUse(LatestUse(book.latest, clock), store.gpu_uses)
    place = _place(settings, store, git.standing, lambda: runner.leads(), wake, clock, log, closing, book)  # noqa: PLW0108
    rounds = round_worker(settings, clock, log, closing)
    budgets = BudgetWatch(_spending(store), history, git.standing, clock, lambda: runner.epoch(), wake, holder)  # noqa: PLW0108
    plane = _plane(holder, store, history, git.standing, place.backend, rounds, time, tally)
    plane = replace(plane, idle=(idle := IdleWatch(book, store.gpu_uses)), budgets=budgets.standings)
    disks = StateDisks({"state": folder.database.parent, **({} if settings.agents else {"tasks": settings.tasks})})
    narrow = NarrowRounds(plane, lambda: runner.epoch(), lambda why: log.error("narrow-rounds-stopped", message=why))  # noqa: PLW0108
    starts = NarrowStarts(narrow)
    metrics = _metrics(store, disks, starts, UseFiguresCollector(book, used.latest, seen), tally, *place.figures)
    events = EventSettler(plane, lambda: runner.epoch(), narrow.ended)  # noqa: PLW0108
    reporter = Reporter(metrics, log, clock, tally, pass_traces(settings.traces, clock, closing), history.rounds(1))
    runner = _runner(plane, narrow, events, reporter, git.follower, is_shared=is_shared)
    checkpoints = CheckpointKeeping(plane, Keeper(store.checkpoints, holder), runner.epoch, log, runner.wake)
    desk, alerts = alert_services(folder, store, store.jobs, history, holder, git.standing, runner.epoch, log)
    alias_keys = own_token_source(folder.alias_key, "key")
    anchors = anchors_of(settings, store, clock, log)
    place.begin()
    asked = plane, git.standing, runner, metrics, desk, git.following, alias_keys, place.unstartable, place.agents
    told = None, (disks, starts), events.tell, narrow.tell, PastRecords(*_spending(store))
    return Parts(
        replace(services_of(*asked, *told, use=used), audit=store.audit, idle_gpus=idle.of_limits),
        (
            *threads_of({"loop": runner, "events": events, "narrow rounds": narrow, "policy": git.follower}),
            *threads_of({"checkpoints": checkpoints, "alerts": alerts, "audit anchors": anchors}),
            *place.members,
            *threads_of({"gpu use": UseKeeper(book, store.gpu_uses, runner.epoch), "budgets": budgets}),
            *threads_of(_keeping_records(store, history, git.standing, clock, runner, holder)),
        ),
        store,
        ending=place.ending,
    )


def _spending(store: SqlStore) -> SpendingRecords:
    return SpendingRecords(store.placements, store.capacities, store.past_jobs)


def _keeping_records(
    store: SqlStore, history: History, policies: PolicySource, clock: Clock, runner: Runner, holder: str
) -> dict[str, Worker]:
    records = store.placements, store.capacities, store.gpu_uses
    return {
        "pruning": Pruning(history, *records, policies, clock, runner.epoch),
        "capacity watch": CapacityWatch(store.capacities, clock, runner.epoch),
        "waits": WaitWatch(history, policies, clock, runner.leads, lambda: runner.status.last, holder),
    }


def _metrics(store: SqlStore, *others: Collector) -> Metrics:
    """Those of rounds, of other parts, and what is read from the store."""
    metrics = Metrics()
    for each in (*others, WebhookFigures(store.alerts), HealthFigures(store.health), StoreFigures(store.database)):
        metrics.add(each)
    return metrics


def _runner(
    plane: ControlPlane,
    narrow: NarrowRounds,
    events: EventSettler,
    reporter: Reporter,
    follower: PolicyFollower,
    *,
    is_shared: bool,
) -> Runner:
    def hear(status: LoopStatus) -> None:
        reporter.hear(status)
        if is_shared and status.condition == "no-policy":
            # The leader alone looks for the first policy.
            follower.ask()

    return Runner(plane, report=hear, narrow=narrow, events=events)


def _place(
    settings: Settings,
    store: SqlStore,
    policies: PolicySource,
    leads: Callable[[], bool],
    wake: Callable[[], None],
    clock: Clock,
    log: FilteringBoundLogger,
    closing: ExitStack,
    book: UseBook,
) -> ExecutionPlatform:
    if settings.agents is not None:
        # Its libraries are an extra that need not be there.
        from reconciler.server.agent_cluster import on_agents

        if settings.store is not None:
            tie_to_agents(store)
        return on_agents(settings, settings.agents, store, policies, leads, wake, clock, log, closing, book)
    if settings.store is not None:
        tie_to_tasks(store, settings.tasks)
    terms = terms_of(settings.secrets, settings.accounts, lambda: policies.current().policy)
    kept = settings.tasks / "gpus"
    driver = driver_for(settings.gpus, kept)
    use = use_of(driver, kept, lambda: policies.current().nodes)
    equipment = equipment_of_this_machine(settings.tasks, use)
    log.info("runtimes", **equipment.told)
    gpus = partial(gpus_of, driver)
    backend = LocalBackend(settings.tasks, lambda: policies.current().nodes, clock, gpus, terms, equipment=equipment)
    failed = failure_teller(log)
    read = samples_of(driver, kept, lambda: nodes_of(policies), backend.devices_at_work, clock, failed)
    recorder = recorder_here(read, policies, book, clock, failed)
    return ExecutionPlatform(
        backend,
        lambda spec, user: equipment.runtimes.unstartable(spec) or terms.unstartable(spec, user),
        members=(*_keeping_logs(settings, clock, log), ServerThread("gpu samples", recorder.run, recorder.stop)),
    )


def _keeping_logs(settings: Settings, clock: Clock, log: FilteringBoundLogger) -> tuple[ServerThread, ...]:
    if settings.keep_logs is None:
        return ()
    retention = AttemptRetention(StateFolders(settings.tasks), clock, settings.keep_logs, log)
    return (ServerThread("logs", retention.run, retention.stop),)


def _plane(
    holder: str,
    store: SqlStore,
    history: History,
    policies: PolicySource,
    backend: TaskRunner,
    rounds: RoundWorker,
    time: ClusterTime,
    tally: JobTally,
) -> ControlPlane:
    return ControlPlane(
        holder=holder,
        jobs=store.jobs,
        ledger=store.ledger,
        history=history,
        checkpoints=store.checkpoints,
        interventions=store.interventions,
        health=store.health,
        backend=backend,
        logs=backend,
        terminals=backend,
        policies=policies,
        solve=rounds,
        clock=time.clock,
        keep_time=time.keeper(store.ledger).keep,
        prepare=rounds.prepare,
        ask=rounds.ask,
        keep_capacity=CapacityRecorder(store.capacities).keep,
        tally=tally,
        reading=store.database.reading_together,
        together=store.database.together,
    )
