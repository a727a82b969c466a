"""Which checkpoints of a job may go: pure, from what is known of them, what policy says, and what is still needed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from reconciler.model.checkpoint_policy import CheckpointPolicy, CheckpointRetention
from reconciler.model.checkpoint_record import CheckpointKey, CheckpointRecord
from solver.model.quantities import Instant


def expired_checkpoints(
    checkpoints: Sequence[CheckpointRecord], policy: CheckpointPolicy, needed: Collection[CheckpointKey], now: Instant
) -> tuple[CheckpointRecord, ...]:
    """Those of one job, newest first, that go now.

    Never goes what is `needed`, the newest that counts, and what is not older than the newest `keep` that count: where policy
    verifies, only verified ones count. A corrupt one goes with its neighbours.
    """
    rule = policy.retention
    kept = [checkpoint for checkpoint in checkpoints if checkpoint.state != "deleted"]
    good = [checkpoint for checkpoint in kept if counts(checkpoint, policy)]
    if not good:
        return ()
    recent = good[min(rule.keep, len(good)) - 1]
    enough = len(good) >= rule.keep
    spared = {good[0].key, *needed, *(checkpoint.key for checkpoint in _one_in_each_span(good, rule))}

    def goes(place: int, checkpoint: CheckpointRecord) -> bool:
        if checkpoint.key in {good[0].key, *needed}:
            return False
        newer_than_good = place < kept.index(good[0])
        too_old = rule.max_age is not None and now - checkpoint.at > rule.max_age and not newer_than_good
        return too_old or (enough and place > kept.index(recent) and checkpoint.key not in spared)

    return tuple(checkpoint for place, checkpoint in enumerate(kept) if goes(place, checkpoint))


def counts(checkpoint: CheckpointRecord, policy: CheckpointPolicy) -> bool:
    """Whether a job would go on from it: verified, or whole at least where policy does not verify."""
    return checkpoint.state == "verified" or (checkpoint.state == "published" and not policy.verify)


def _one_in_each_span(good: Sequence[CheckpointRecord], rule: CheckpointRetention) -> Iterable[CheckpointRecord]:
    """The oldest of each span of `keep_every`, counted from 1970: it is the same one whenever it is asked for."""
    if rule.keep_every is None:
        return ()
    return {checkpoint.at // rule.keep_every: checkpoint for checkpoint in good}.values()
