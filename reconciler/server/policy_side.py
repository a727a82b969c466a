"""The part of a control plane that follows Git: the policy in force, what looks for a newer one, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from reconciler.access.secret_file import SecretFile
from reconciler.api.git_services import GitServices, Planning
from reconciler.gitops.review.activation import AsAccepted, FreshPlans, WithinGuardrails
from reconciler.gitops.review.review_process import review_apart
from reconciler.gitops.source.archive import RevisionArchive
from reconciler.gitops.source.floor import read_allowed_signers
from reconciler.gitops.source.four_eyes import FourEyes
from reconciler.gitops.source.mirror import GitMirror
from reconciler.gitops.source.requirements import FastForward, Valid
from reconciler.gitops.source.signatures import Signed
from reconciler.gitops.source.standing_policy import StandingPolicy
from reconciler.model.clock import Clock, SystemClock
from reconciler.model.envelope import Envelope
from reconciler.protocols.history import History
from reconciler.server.policy_follower import AcceptedByPeople, PolicyFollower
from reconciler.server.settings import Settings
from reconciler.server.shared_policy import SharedPolicy
from reconciler.server.webhook_secret import WebhookSecretError, read_webhook_secrets
from reconciler.store.store import SqlStore
from solver.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class PolicySide:
    """`standing` has the policy, `follower` a thread of its own, `following` what the API says and is told of it."""

    standing: StandingPolicy
    follower: PolicyFollower
    following: GitServices


def policy_side(
    settings: Settings,
    store: SqlStore,
    history: History,
    clock: Clock,
    holder: str,
    snapshot: Callable[[], Snapshot | None],
    wake: Callable[[], None],
    log: FilteringBoundLogger,
    *,
    is_shared: bool = False,
) -> PolicySide:
    """`snapshot`: what the last pass saw, for plans of changes. `is_shared`: other control planes have the same store.

    Raises AllowedSignersError, WebhookSecretError.
    """
    secrets = _webhook_secrets(settings.webhook_secret)
    plans = FreshPlans(snapshot, review_apart)
    standing = _standing(settings, store, clock, plans)
    looked = SharedPolicy(standing, store, holder) if is_shared else standing
    follower = PolicyFollower(looked, history, store.following, clock, holder, wake, log, settings.poll.seconds)
    following = GitServices(
        settings.branch,
        store.following,
        standing.status,
        follower.ask,
        lambda: follower.looked_at,
        Planning(store.plans, lambda: plans.made, standing.current),
        RevisionArchive(settings.folder.mirror),
        secrets,
    )
    return PolicySide(standing, follower, following)


def _webhook_secrets(path: Path | None) -> Callable[[], tuple[bytes, ...]]:
    """What forges sign with, as the file says now. Raises WebhookSecretError."""
    if path is None:
        return tuple
    source = SecretFile(path, read_webhook_secrets, WebhookSecretError)
    source()  # Better found wrong now than by the first delivery.
    return source


def _standing(settings: Settings, store: SqlStore, clock: Clock, plans: FreshPlans) -> StandingPolicy:
    """The policy in force, and what is asked of every revision that is to replace it, in order."""
    if settings.allowed_signers is not None:
        # Better found wrong now than by the first revision.
        read_allowed_signers(settings.allowed_signers, SystemClock().now())
    mirror, branch = GitMirror(settings.folder.mirror, settings.policies), settings.branch

    def accepted(meaning: str) -> Envelope | None:
        found = store.plans.accepted(meaning)
        return found.envelope if found else None

    requirements = (
        FastForward(mirror, branch),
        Signed(mirror, branch, SystemClock(), settings.allowed_signers),
        FourEyes(mirror),
        Valid(),
        WithinGuardrails(plans),
        AsAccepted(plans, accepted),
    )
    acceptance = AcceptedByPeople(store.following, store.plans, clock)
    return StandingPolicy(mirror, branch, requirements, acceptance, settings.cluster)
