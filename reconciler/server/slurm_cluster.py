"""A control plane that only looks at a cluster which Slurm schedules."""

from __future__ import annotations

from contextlib import ExitStack
from contextlib import closing as shut
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.access.token_file import own_token_source
from reconciler.alerts.figures import WebhookFigures
from reconciler.analysis.backtest.observed_files import ObservedFiles
from reconciler.analysis.traces import TraceUnreadableError
from reconciler.api.payloads import Condition
from reconciler.control.job_counts import JobTally
from reconciler.control.metrics import Metrics
from reconciler.control.seen_plane import ElsewhereWords, SeenHoldings, SeenJobs, SeenPlane
from reconciler.control.use_summary import KnownUse, LatestUse
from reconciler.model.clock import Clock, SystemClock
from reconciler.model.comparison import ObservedComparison
from reconciler.model.watch_status import FollowedKind
from reconciler.protocols.backend import Epoch
from reconciler.protocols.job_source import JobsAreElsewhereError
from reconciler.server.alerts import alert_services
from reconciler.server.folder import FolderUnusableError
from reconciler.server.history_log import LoggedHistory
from reconciler.server.kubernetes_cluster import HOLDER
from reconciler.server.parts import Parts, ServerThread
from reconciler.server.policy_side import policy_side
from reconciler.server.pruning import Pruning
from reconciler.server.reporter import Reporter
from reconciler.server.round_process import round_worker
from reconciler.server.services import services_of
from reconciler.server.settings import Settings, SlurmSettings
from reconciler.server.store_access import opened_keys
from reconciler.server.traces import pass_traces
from reconciler.slurm.commands import SlurmCommands
from reconciler.slurm.observer import SlurmMemory, SlurmObserver
from reconciler.slurm.runner import SlurmRunner
from reconciler.slurm.site import SlurmCluster, SlurmPlane
from reconciler.store.figures import StoreFigures
from reconciler.store.store import SqlStore, open_store
from solver.model.snapshot import Snapshot
from solver.model.workload import JobName

_WORDS: Final = ElsewhereWords(
    "Jobs of this cluster are Slurm's, and it is only observed",
    {
        "submit": "Submit it with `sbatch`.",
        "cancel": "Say `scancel`.",
        "suspend": "Say `scontrol hold`, or `scontrol suspend` for one that runs.",
        "resume": "Say `scontrol release`, or `scontrol resume`.",
        "requeue": "Say `scontrol requeue`.",
        "retry": "Say `scontrol requeue`.",
        "end": "Say `scancel`.",
    },
)


class _NoLogs:
    """Implements Logs: Slurm's jobs write where they were told to."""

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        """Raises JobsAreElsewhereError with where to look."""
        del attempt, group, index, offset, limit
        fix = f"See where it writes with `scontrol show job` (StdOut) of the number at the end of {job}."
        raise JobsAreElsewhereError("Jobs of this cluster are Slurm's, so Quorate does not keep what they write.", fix)


class _SlurmStatus:
    """Implements ClusterStanding."""

    def __init__(self, observer: SlurmObserver) -> None:
        self._observer = observer

    def followed(self) -> tuple[FollowedKind, ...]:
        """Nothing is: Slurm is asked anew each time."""
        return ()

    def conditions(self) -> tuple[Condition, ...]:
        """The loop's own says whether Slurm answers."""
        return ()

    def beside(self) -> ObservedComparison:
        """As of the last look."""
        return self._observer.summary


def parts_beside_slurm(settings: Settings, on: SlurmSettings, log: FilteringBoundLogger, closing: ExitStack) -> Parts:
    """Put it together. Raises FolderUnusableError, StoreUnusableError, TokenFileError and those of policy_side."""
    folder, clock = settings.folder, SystemClock()
    store = closing.enter_context(shut(open_store(folder.database, audit_keys=opened_keys(settings))))
    history = LoggedHistory(
        store.history, log, tally := JobTally(counts_ends=False, decides=False), store.database.once_committed
    )

    def last_seen() -> Snapshot | None:
        return runner.status.last.snapshot if runner.status.last else None

    git = policy_side(settings, store, history, clock, HOLDER, last_seen, lambda: runner.wake(), log)  # noqa: PLW0108  (there is no runner yet)
    observer = _observer(settings, on, store, history, clock, log)
    rounds = round_worker(settings, clock, log, closing)
    cluster = SlurmCluster(SlurmCommands(), on.queue)
    metrics, trace = Metrics(), pass_traces(settings.traces, clock, closing)
    reporter = Reporter(metrics, log, clock, tally, trace, history.rounds(1))
    plane = SlurmPlane(cluster, observer, store.interventions, git.standing, rounds, clock)
    runner = SlurmRunner(plane, on.every.seconds, reporter.hear)
    for figures in (tally, WebhookFigures(store.alerts), StoreFigures(store.database)):
        metrics.add(figures)

    jobs, ledger = SeenJobs(lambda: runner.seen, _WORDS), SeenHoldings(lambda: runner.seen)
    stores = store.checkpoints, store.interventions, store.health
    seen = SeenPlane(HOLDER, jobs, ledger, history, _NoLogs(), clock, *stores)

    def epoch() -> Epoch | None:
        return runner.status.last.epoch if runner.status.last else None

    desk, alerts = alert_services(folder, store, jobs, history, HOLDER, git.standing, epoch, log)
    pruning = Pruning(history, store.placements, store.capacities, store.gpu_uses, git.standing, clock, epoch)
    asked = seen, git.standing, runner, metrics, desk, git.following, own_token_source(folder.alias_key, "key")
    return Parts(
        services_of(
            *asked, lambda _, __: None, cluster=_SlurmStatus(observer), use=KnownUse(LatestUse(dict, clock), None)
        ),
        (
            ServerThread("loop", runner.run, runner.stop),
            ServerThread("policy", git.follower.run, git.follower.stop),
            ServerThread("alerts", alerts.run, alerts.stop),
            ServerThread("pruning", pruning.run, pruning.stop),
        ),
        store,
        ending="they are Slurm's, and go on",
    )


def _observer(
    settings: Settings,
    on: SlurmSettings,
    store: SqlStore,
    history: LoggedHistory,
    clock: Clock,
    log: FilteringBoundLogger,
) -> SlurmObserver:
    folder = settings.folder
    files = ObservedFiles(folder.observed, folder.observed_nodes)
    try:
        return SlurmObserver(SlurmMemory(store.ledger, history, HOLDER, files, folder.comparison), on.every, clock, log)
    except (OSError, TraceUnreadableError) as error:
        raise FolderUnusableError(f"{error}. Move that file away to begin a new record") from error
