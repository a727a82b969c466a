"""A control plane whose jobs are processes of this machine."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.agent.nvml.here import nvml_gpus
from reconciler.alerts.figures import WebhookFigures
from reconciler.backends.local import LocalBackend
from reconciler.backends.local.gpus import DeclaredGpus
from reconciler.checkpoints.keeper import Keeper
from reconciler.clock import Clock, SystemClock
from reconciler.control import ControlPlane, PolicySource
from reconciler.metrics import Metrics
from reconciler.optimiser import KillableOptimiser
from reconciler.optimiser.recording import solver_with
from reconciler.runner import Runner
from reconciler.server.alerts import alerting
from reconciler.server.checkpoints import CheckpointKeeping
from reconciler.server.parts import Member, Parts
from reconciler.server.policy_side import policy_side
from reconciler.server.reporter import Reporter
from reconciler.server.services import services_of
from reconciler.server.settings import Settings
from reconciler.server.terms import open_to_accounts, terms_of
from reconciler.server.told import ToldHistory
from reconciler.store.protocols import History
from reconciler.store.sql.store import SqlStore, open_store
from reconciler.token_file import read_or_make_token

HOLDER: Final = "control-plane"
"""The database lies in a locked folder, so whoever holds the lock leads; and leads at once after a restart."""


def parts_on_this_machine(settings: Settings, log: FilteringBoundLogger, closing: ExitStack) -> Parts:
    """Put it together.

    Raises DriverUnusableError, StoreUnusableError, UnsafeSecretsError, IdentityError, TokenFileError and those of policy_side.
    """
    folder, clock = settings.folder, SystemClock()
    if settings.accounts is not None:
        open_to_accounts(folder.path, folder.tasks)
    store = open_store(folder.database)
    closing.callback(store.close)
    history = ToldHistory(store.history, log)
    git = policy_side(
        settings,
        store,
        history,
        clock,
        HOLDER,
        snapshot=lambda: runner.status.last.snapshot if runner.status.last else None,
        wake=lambda: runner.wake(),  # noqa: PLW0108  (there is no runner yet)
        log=log,
    )
    optimiser = closing.enter_context(
        KillableOptimiser(report=lambda failure: log.warning("optimiser", message=failure))
    )
    terms = terms_of(settings.secrets, settings.accounts, lambda: git.standing.current().policy)
    gpus = nvml_gpus if settings.gpus == "nvml" else DeclaredGpus
    backend = LocalBackend(folder.tasks, lambda: git.standing.current().nodes, clock, gpus=gpus, terms=terms)
    plane = _plane(store, history, git.standing, backend, optimiser, clock)
    metrics = Metrics()
    metrics.add(WebhookFigures(store.alerts))
    runner = Runner(plane, report=Reporter(metrics, log).hear)
    checkpoints = CheckpointKeeping(plane, Keeper(store.checkpoints, HOLDER), runner.epoch, log, runner.wake)
    desk, alerts = alerting(folder, store, store.jobs, history, HOLDER, git.standing, runner.epoch, log)

    def decide() -> None:
        optimiser.warm_up()
        runner.run()

    alias_key = read_or_make_token(folder.alias_key, "key")
    return Parts(
        services_of(plane, git.standing, runner, metrics, desk, git.following, alias_key, terms.unstartable),
        (
            Member("loop", decide, runner.stop),
            Member("policy", git.follower.run, git.follower.stop),
            Member("checkpoints", checkpoints.run, checkpoints.stop),
            Member("alerts", alerts.run, alerts.stop),
        ),
        store,
        ending="they go on; the next start on this state folder finds them",
    )


def _plane(
    store: SqlStore,
    history: History,
    policies: PolicySource,
    backend: LocalBackend,
    optimiser: KillableOptimiser,
    clock: Clock,
) -> ControlPlane:
    return ControlPlane(
        holder=HOLDER,
        jobs=store.jobs,
        ledger=store.ledger,
        history=history,
        checkpoints=store.checkpoints,
        interventions=store.interventions,
        backend=backend,
        logs=backend,
        terminals=backend,
        policies=policies,
        solve=solver_with(optimiser),
        clock=clock,
    )
