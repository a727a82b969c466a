"""Wires a control plane on this machine together, runs it until it is told to stop or fails, and takes it apart again."""

from __future__ import annotations

import os
import pwd
import secrets
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.access.authenticator import Authenticator
from reconciler.access.oidc import OidcVerifier
from reconciler.access.policy import AccessPolicy
from reconciler.access.tokens import TokenFile
from reconciler.alerts.courier import Courier
from reconciler.alerts.desk import AlertDesk
from reconciler.alerts.figures import WebhookFigures
from reconciler.alerts.sender import Sender
from reconciler.api.following import Following, Planning
from reconciler.api.guard import LOOPBACK_NAMES, Guard
from reconciler.api.serve import ApiServer
from reconciler.backends.local import LocalBackend
from reconciler.backends.local.terms import Terms
from reconciler.checkpoints.keeper import Keeper
from reconciler.clock import SystemClock
from reconciler.control import ControlPlane
from reconciler.gitsource.floor import read_allowed_signers
from reconciler.gitsource.four_eyes import FourEyes
from reconciler.gitsource.mirror import Mirror
from reconciler.gitsource.requirements import FastForward, Valid
from reconciler.gitsource.signatures import Signed
from reconciler.gitsource.standing import StandingPolicy
from reconciler.metrics import Metrics
from reconciler.optimiser import KillableOptimiser
from reconciler.optimiser.recording import solver_with
from reconciler.review.activation import AsAccepted, FreshPlans, WithinGuardrails
from reconciler.review.apart import review_apart
from reconciler.review.envelope import Envelope
from reconciler.runner import LoopStatus, Runner
from reconciler.server.alerts import AlertSending
from reconciler.server.checkpoints import CheckpointKeeping
from reconciler.server.crew import Crew
from reconciler.server.folder import StateFolder
from reconciler.server.follow import AcceptedByPeople, PolicyFollower
from reconciler.server.services import services_of
from reconciler.server.terms import open_to_accounts, terms_of
from reconciler.server.told import ToldHistory
from reconciler.server.webhook_secret import read_webhook_secret
from reconciler.store.sql.store import SqlStore, open_store
from reconciler.token_file import read_or_make_token
from solver.world.quantities import Duration

HOLDER: Final = "control-plane"
"""The database lies in a locked folder, so whoever holds the lock leads; and leads at once after a restart."""


class ServerEndedError(Exception):
    """The API stopped serving, though nobody asked it to."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `quorate run` was asked for. `hosts`: names, beside loopback's, that the API answers to. `tokens`: the token file.

    `allowed_signers`: whose signatures are asked for whatever Git says. `webhook_secret`: the file of what forges sign with.
    `secrets`: the folder of secrets. `accounts`: which users have which accounts of this machine; None: jobs run as this user.
    `cluster`: whose policy is followed, where the repository has several.
    """

    policies: str
    branch: str
    folder: StateFolder
    host: str
    port: int
    poll: Duration
    hosts: Collection[str] = ()
    authenticate: bool = True
    tokens: Path | None = None
    secrets: Path | None = None
    accounts: Mapping[str, str] | None = None
    allowed_signers: Path | None = None
    webhook_secret: Path | None = None
    cluster: str | None = None


def serve(settings: Settings, log: FilteringBoundLogger) -> None:
    """Run until SIGTERM or SIGINT. Tasks go on when it ends, and the next start on the same folder finds them.

    Raises FolderUnusableError, StoreUnusableError, UnsafeUrlError, TokenFileError, InsecureBindingError, AddressError,
    UnsafeSecretsError, IdentityError, AllowedSignersError, WebhookSecretError; and whatever ended a thread.
    """
    with ExitStack() as closing:
        closing.enter_context(settings.folder.locked())
        if settings.accounts is not None:
            open_to_accounts(settings.folder.path, settings.folder.tasks)
        parts = _assemble(settings, log, closing)
        alias_key = read_or_make_token(settings.folder.alias_key, "key")
        services = services_of(
            parts.plane,
            parts.standing,
            parts.runner,
            parts.metrics,
            parts.desk,
            parts.following,
            alias_key,
            parts.terms.unstartable,
        )
        guard = _guard(settings, services.access)
        api = closing.enter_context(ApiServer(services, guard, settings.host, settings.port))
        crew = Crew()
        with _told_by_signals(crew.dismiss):
            log.info("listening", url=api.url, state=str(settings.folder.path), authentication=guard.token is not None)
            crew.start("loop", parts.decide)
            crew.start("policy", parts.follower.run)
            crew.start("checkpoints", parts.checkpoints.run)
            crew.start("alerts", parts.alerts.run)
            crew.wait(lambda: api.alive and parts.store.database.failure is None)
            log.info("stopping", tasks="they go on; the next start on this state folder finds them")
        parts.runner.stop()
        parts.follower.stop()
        parts.checkpoints.stop()
        parts.alerts.stop()
        crew.join()
        if parts.store.database.failure is not None:
            # A request met it, and the loop not yet: its connection may still live on what it has in memory.
            raise parts.store.database.failure
        if not api.alive:
            raise ServerEndedError(f"{api.url}: the API stopped serving. See the log above; start again")
    log.info("stopped")


@dataclass(frozen=True, slots=True)
class _Parts:
    store: SqlStore
    plane: ControlPlane
    standing: StandingPolicy
    runner: Runner
    follower: PolicyFollower
    following: Following
    checkpoints: CheckpointKeeping
    alerts: AlertSending
    desk: AlertDesk
    optimiser: KillableOptimiser
    metrics: Metrics
    terms: Terms

    def decide(self) -> None:
        """The loop's thread."""
        self.optimiser.warm_up()
        self.runner.run()


def _assemble(settings: Settings, log: FilteringBoundLogger, closing: ExitStack) -> _Parts:
    folder, clock = settings.folder, SystemClock()
    store = open_store(folder.database)
    closing.callback(store.close)
    secret = b"" if settings.webhook_secret is None else read_webhook_secret(settings.webhook_secret)
    plans = FreshPlans(lambda: runner.status.last.snapshot if runner.status.last else None, review_apart)
    standing = _standing(settings, store, clock, plans)
    optimiser = closing.enter_context(
        KillableOptimiser(report=lambda failure: log.warning("optimiser", message=failure))
    )
    terms = terms_of(settings.secrets, settings.accounts, lambda: standing.current().policy)
    backend = LocalBackend(folder.tasks, lambda: standing.current().nodes, clock, terms=terms)
    plane = ControlPlane(
        holder=HOLDER,
        jobs=store.jobs,
        ledger=store.ledger,
        history=ToldHistory(store.history, log),
        checkpoints=store.checkpoints,
        interventions=store.interventions,
        backend=backend,
        logs=backend,
        terminals=backend,
        policies=standing,
        solve=solver_with(optimiser),
        clock=clock,
    )
    metrics = Metrics()
    metrics.add(WebhookFigures(store.alerts))
    runner = Runner(plane, report=Reporter(metrics, log).hear)
    follower = PolicyFollower(
        standing, plane.history, store.following, clock, HOLDER, runner.wake, log, settings.poll.seconds
    )
    following = Following(
        settings.branch,
        store.following,
        standing.status,
        follower.ask,
        lambda: follower.looked_at,
        Planning(store.plans, lambda: plans.made, standing.current),
        secret,
    )
    checkpoints = CheckpointKeeping(plane, Keeper(store.checkpoints, HOLDER), runner.epoch, log, runner.wake)
    desk = AlertDesk(store.alerts, Sender(folder.alert_secrets, clock))
    chance = secrets.SystemRandom().random
    courier = Courier(store.alerts, plane.history, store.jobs, clock, desk.sender.send, chance, HOLDER)
    alerts = AlertSending(courier, standing, runner.epoch, log)
    return _Parts(
        store, plane, standing, runner, follower, following, checkpoints, alerts, desk, optimiser, metrics, terms
    )


def _standing(settings: Settings, store: SqlStore, clock: SystemClock, plans: FreshPlans) -> StandingPolicy:
    """The policy in force, and what is asked of every revision that is to replace it, in order."""
    if settings.allowed_signers is not None:
        # Better found wrong now than by the first revision.
        read_allowed_signers(settings.allowed_signers, clock.now())
    mirror, branch = Mirror(settings.folder.mirror, settings.policies), settings.branch

    def accepted(meaning: str) -> Envelope | None:
        found = store.plans.accepted(meaning)
        return found.envelope if found else None

    requirements = (
        FastForward(mirror, branch),
        Signed(mirror, branch, clock, settings.allowed_signers),
        FourEyes(mirror),
        Valid(),
        WithinGuardrails(plans),
        AsAccepted(plans, accepted),
    )
    acceptance = AcceptedByPeople(store.following, store.plans, clock)
    return StandingPolicy(mirror, branch, requirements, acceptance, settings.cluster)


@dataclass
class Reporter:
    """Hears what came of each pass: feeds the metrics, and logs when the loop's condition changes."""

    metrics: Metrics
    log: FilteringBoundLogger
    _said: tuple[str, str] = field(default=("", ""))

    def hear(self, status: LoopStatus) -> None:
        """One pass is over."""
        if status.condition == "leading" and status.last is not None:
            self.metrics.observe(status.last.snapshot, status.last.plan, status.last.phase_ms, status.last.by_hand)
        saying = status.condition, status.message
        if saying != self._said:
            self._said = saying
            say = self.log.info if status.condition == "leading" else self.log.warning
            say(status.condition, **({"message": status.message} if status.message else {}))


def _guard(settings: Settings, access: Callable[[], AccessPolicy | None]) -> Guard:
    tokens = TokenFile(settings.tokens) if settings.tokens is not None else None
    if tokens is not None:
        # Better found wrong now than by the first who comes.
        tokens.check()
    token = read_or_make_token(settings.folder.token) if settings.authenticate else None
    wildcard = settings.host in ("0.0.0.0", "::")  # noqa: S104  (compared with, not listened to)
    own_name = () if wildcard else (settings.host,)
    identify = Authenticator(access, OidcVerifier(SystemClock()), tokens)
    return Guard(token, _user_name(), LOOPBACK_NAMES.union(own_name, settings.hosts), identify)


def _user_name() -> str:
    """Who the token file belongs to; a container may run under a number that has no name."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return f"uid-{os.geteuid()}"


@contextmanager
def _told_by_signals(tell: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT tell; after the block, and so while the parts stop, another one ends the process at once."""
    before = {number: signal.signal(number, lambda *_: tell()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
