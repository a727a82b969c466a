"""What Git says beside what a round decides: how jobs are kept alive, what users may ask for, what alerts say, what GPUs cost."""

from __future__ import annotations

from reconciler.access.policy import AccessPolicy
from reconciler.alerts.policy import AlertPolicy
from reconciler.model.budget import GpuBudget
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.health_policy import HealthPolicy
from reconciler.model.idle_policy import IdlePolicy
from reconciler.model.rate_card import RateCard
from reconciler.model.retry_policy import NO_RETRIES, RetryPolicy
from solver.model.document import Document
from solver.policy.images import ImagePolicy


class Operations(Document, frozen=True):
    """The rules of one revision that rounds do not read. What happens to a job by them reaches rounds through the snapshot.

    `checkpoints`, `retry`, `alerts`, `idle` and `budgets` are sorted by name, `rates` by their begin. `access` None: the holder of
    the state folder's token may do everything.
    `health` None: it is not judged whether nodes are well.
    """

    checkpoints: tuple[CheckpointPolicy, ...] = ()
    retry: tuple[RetryPolicy, ...] = ()
    access: AccessPolicy | None = None
    alerts: tuple[AlertPolicy, ...] = ()
    health: HealthPolicy | None = None
    images: ImagePolicy = ImagePolicy()
    rates: tuple[RateCard, ...] = ()
    idle: tuple[IdlePolicy, ...] = ()
    budgets: tuple[GpuBudget, ...] = ()

    @property
    def storages(self) -> dict[str, CheckpointPolicy]:
        """The CheckpointPolicies by name."""
        return {policy.name: policy for policy in self.checkpoints}

    def retry_policy(self, name: str) -> RetryPolicy:
        """The RetryPolicy of this name; NO_RETRIES where a job names none, or one that a later revision no longer has."""
        return next((policy for policy in self.retry if policy.name == name), NO_RETRIES)
