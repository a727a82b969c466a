"""A control plane with the pods of a Kubernetes cluster as jobs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from contextlib import closing as shut
from dataclasses import replace
from functools import partial
from random import SystemRandom
from typing import Final, NamedTuple

from prometheus_client.registry import Collector
from structlog.typing import FilteringBoundLogger

from reconciler.access.token_file import own_token_source
from reconciler.alerts.figures import WebhookFigures
from reconciler.analysis.backtest.observed_files import ObservedFiles
from reconciler.analysis.showback.budgets import SpendingRecords
from reconciler.analysis.traces import TraceUnreadableError
from reconciler.api.services import PastRecords
from reconciler.control.control import LEASE, PolicySource
from reconciler.control.job_counts import JobTally
from reconciler.control.metrics import Metrics
from reconciler.control.seen_plane import SeenPlane
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.kubernetes.client.credentials import Credentials
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig, kubeconfig_paths
from reconciler.kubernetes.client.leader import NoNamespaceError
from reconciler.kubernetes.client.refusals import CredentialsError, KubernetesError
from reconciler.kubernetes.client.service_account import in_cluster
from reconciler.kubernetes.control.connection import Beside, ClusterConnection, acting_plane, observing_plane
from reconciler.kubernetes.control.followed_figures import FollowedFigures
from reconciler.kubernetes.control.observer import Observer
from reconciler.kubernetes.control.plane import Handed, PodPlane
from reconciler.kubernetes.control.pod_recorder import PodRecorder
from reconciler.kubernetes.control.policy_publication import PolicyPublication
from reconciler.kubernetes.control.runner import PodRunner
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.control.state import KubernetesState
from reconciler.kubernetes.control.views import Logless, PodHoldings, PodJobs
from reconciler.kubernetes.objects.pod_ownership import OURS, PodOwnership
from reconciler.lifecycle.health.figures import HealthFigures
from reconciler.model.clock import Clock
from reconciler.protocols.backend import Epoch
from reconciler.server.alerts import alert_services
from reconciler.server.audit_anchors import anchors_of
from reconciler.server.budget_watch import BudgetWatch
from reconciler.server.capacity_watch import CapacityWatch
from reconciler.server.cluster_time import ServedTime
from reconciler.server.exported_use import exported_use
from reconciler.server.folder import FolderUnusableError, StateFolder
from reconciler.server.history_log import LoggedHistory
from reconciler.server.kubernetes_status import KubernetesStatus
from reconciler.server.parts import Parts, ServerThread, threads_of
from reconciler.server.policy_side import policy_side
from reconciler.server.pruning import Pruning
from reconciler.server.reporter import Reporter
from reconciler.server.round_process import round_worker
from reconciler.server.services import services_of
from reconciler.server.settings import KubernetesSettings, Settings
from reconciler.server.store_access import opened_keys
from reconciler.server.traces import pass_traces
from reconciler.server.wait_watch import WaitWatch
from reconciler.store.figures import StoreFigures
from reconciler.store.store import SqlStore, open_store
from solver.model.snapshot import Snapshot

HOLDER: Final = "control-plane"
"""Of the store, which lies in a locked folder. The Lease says which writes of the cluster are the leader's."""


class KubernetesFailedError(Exception):
    """The API server can't be reached as configured, or keeps from Quorate what it needs. A person acts."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def credentials_of(settings: KubernetesSettings, clock: Clock) -> Credentials:
    """How to reach the API server. Raises CredentialsError."""
    asked_for = settings.kubeconfig or settings.context
    if not asked_for and "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster(os.environ, clock)
    return from_kubeconfig(settings.kubeconfig or kubeconfig_paths(os.environ), clock, settings.context)


def parts_on_kubernetes(
    settings: Settings, on: KubernetesSettings, log: FilteringBoundLogger, closing: ExitStack
) -> Parts:
    """Put it together.

    Raises KubernetesFailedError, FolderUnusableError, StoreUnusableError, TokenFileError and those of policy_side.
    """
    folder, time = settings.folder, ServedTime()
    clock, cluster = time.clock, _cluster(on, time)
    store = closing.enter_context(shut(open_store(folder.database, audit_keys=opened_keys(settings))))
    tally = JobTally(counts_ends=False, decides=on.observed is None)
    history = LoggedHistory(store.history, log, tally, store.database.once_committed)

    def last_seen() -> Snapshot | None:
        return runner.status.last.snapshot if runner.status.last else None

    git = policy_side(settings, store, history, clock, HOLDER, last_seen, lambda: runner.wake(), log)  # noqa: PLW0108  (there is no runner yet)
    memory = KubernetesState(store.ledger, history, store.gone_pods, clock, HOLDER, LEASE)
    observer = _observer(on.observed, folder, memory, clock, log) if on.observed else None
    rounds = round_worker(settings, clock, log, closing)
    of_git = git.standing, rounds, clock, SystemRandom(), partial(_stalled, git.standing)
    past = _past(store, on, history, git.standing, clock, lambda: runner, memory)
    handed = Handed(memory, store.interventions, store.health, *of_git, log, past.recorder, past.budgets.standings)
    beside = _showing(settings, on, git.standing, log)

    def connect() -> AbstractAsyncContextManager[PodPlane]:
        return observing_plane(cluster, handed, observer) if observer else acting_plane(cluster, handed, beside)

    metrics, trace = Metrics(), pass_traces(settings.traces, clock, closing)
    runner = PodRunner(connect, clock, Reporter(metrics, log, clock, tally, trace, history.rounds(1)).hear)
    use = exported_use(on.dcgm, store.gpu_uses, git.standing, lambda: runner, lambda: memory.epoch, clock, log)
    _count(metrics, store, FollowedFigures(runner), HealthFigures(store.health), tally, *use.figures)
    plane = replace(_seen(on, store, history, clock, lambda: runner.sight), budgets=past.budgets.standings)
    desk, alerts = alert_services(folder, store, plane.jobs, history, HOLDER, git.standing, lambda: memory.epoch, log)
    anchors = anchors_of(settings, store, clock, log)
    status, kept = KubernetesStatus(runner.followed, git.standing), PastRecords(*past.records)
    asked = plane, git.standing, runner, metrics, desk, git.following, own_token_source(folder.alias_key, "key")
    return Parts(
        replace(services_of(*asked, lambda _, __: None, cluster=status, past=kept, use=use.known), audit=store.audit),
        (
            ServerThread("loop", lambda: _decide(runner, on), runner.stop),
            *threads_of({"policy": git.follower, "alerts": alerts, "audit anchors": anchors}),
            *threads_of({"budgets": past.budgets, "capacity watch": past.watch}),
            *_keeping_watch(store, history, git.standing, clock, runner, memory, observes=observer is not None),
            *use.members,
        ),
        store,
        ending="they go on; the next leader finds them",
    )


def _seen(
    on: KubernetesSettings, store: SqlStore, history: LoggedHistory, clock: Clock, sight: Callable[[], Sight]
) -> SeenPlane:
    """What callers of the API are told of pods."""
    jobs, stores = PodJobs(sight, store.pod_placements.past), (store.checkpoints, store.interventions, store.health)
    return SeenPlane(on.holder, jobs, PodHoldings(sight), history, Logless(sight), clock, *stores)


class _PastKeeping(NamedTuple):
    """What keeps, and what reads, what pods held."""

    recorder: PodRecorder
    records: SpendingRecords
    budgets: BudgetWatch
    watch: CapacityWatch


def _past(
    store: SqlStore,
    on: KubernetesSettings,
    history: LoggedHistory,
    policies: PolicySource,
    clock: Clock,
    runner: Callable[[], PodRunner],
    memory: KubernetesState,
) -> _PastKeeping:
    def leads() -> Epoch | None:
        return memory.epoch if runner().status.condition in ("leading", "observing") else None

    records = SpendingRecords(store.placements, store.capacities, store.past_jobs)
    return _PastKeeping(
        PodRecorder(store.pod_placements, store.capacities, on.observed or OURS),
        records,
        BudgetWatch(records, history, policies, clock, leads, lambda: runner().wake(), HOLDER),
        CapacityWatch(store.capacities, clock, leads),
    )


def _keeping_watch(
    store: SqlStore,
    history: LoggedHistory,
    policies: PolicySource,
    clock: Clock,
    runner: PodRunner,
    memory: KubernetesState,
    *,
    observes: bool,
) -> tuple[ServerThread, ...]:
    """What looks at what there is, beside the loop. Where another scheduler decides, how long jobs wait is not told."""

    def leads() -> bool:
        return memory.epoch is not None and not observes

    waits = WaitWatch(history, policies, clock, leads, lambda: runner.status.last, HOLDER)
    kept = store.placements, store.capacities, store.gpu_uses
    pruning = Pruning(history, *kept, policies, clock, lambda: memory.epoch)
    return (
        ServerThread("pruning", pruning.run, pruning.stop),
        ServerThread("waits", waits.run, waits.stop),
    )


def _count(metrics: Metrics, store: SqlStore, *others: Collector) -> None:
    for figures in (*others, WebhookFigures(store.alerts), StoreFigures(store.database)):
        metrics.add(figures)


def _stalled(policies: StandingPolicy) -> str:
    """Why a newer policy is not in force; "": there is none."""
    now = policies.status().condition("Stalled")
    return now.message if now.status else ""


def _observer(
    whose: PodOwnership, folder: StateFolder, memory: KubernetesState, clock: Clock, log: FilteringBoundLogger
) -> Observer:
    try:
        return Observer(whose, ObservedFiles(folder.observed, folder.observed_nodes), memory, clock, log)
    except (OSError, TraceUnreadableError) as error:
        raise FolderUnusableError(f"{error}. Move that file away to begin a new record") from error


def _showing(
    settings: Settings, on: KubernetesSettings, policies: PolicySource, log: FilteringBoundLogger
) -> tuple[Beside, ...]:
    """The policy in the cluster, where that was asked for."""
    read = GitMirror(settings.folder.mirror, settings.policies).read
    shown = PolicyPublication(policies, read, settings.cluster, on.namespace, log)
    return (shown.run,) if on.mirror_policy else ()


def _decide(runner: PodRunner, on: KubernetesSettings) -> None:
    with _told_to_people(on):
        runner.run()


def _cluster(on: KubernetesSettings, time: ServedTime) -> ClusterConnection:
    try:
        credentials = credentials_of(on, time.clock)
    except CredentialsError as error:
        raise KubernetesFailedError(str(error), "") from error
    named = on.namespace, on.lease, on.holder
    return ClusterConnection(credentials, on.qps, on.burst, *named, mig_configs=on.mig_configs, told_time=time.hear)


@contextmanager
def _told_to_people(on: KubernetesSettings) -> Iterator[None]:
    """What the API server does not let us do is for a person to mend."""
    try:
        yield
    except NoNamespaceError as error:
        fix = f"Make it, kubectl create namespace {on.namespace}, or name another with --namespace."
        raise KubernetesFailedError(str(error), fix) from error
    except CredentialsError as error:
        raise KubernetesFailedError(str(error), "") from error
    except KubernetesError as error:
        where = os.pathsep.join(map(str, on.kubeconfig)) or "the pod's service account"
        raise KubernetesFailedError(
            str(error), f"See to it that {where} may do that: docs/kubernetes-rights.md."
        ) from error
