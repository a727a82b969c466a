"""What a gang that is to leave knows of its checkpoints: whether it may write one now, and which it has written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from reconciler.lifecycle.checkpoints.turns import storage_of, turns
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.checkpoint_record import CheckpointRecord
from reconciler.model.job_record import JobRecord
from reconciler.protocols.checkpoints import CheckpointRegistry
from solver.model.inflight import Intent
from solver.model.workload import JobName


@dataclass(frozen=True, slots=True)
class SaveStatus:
    """`turns`: jobs that may begin to save their work. `needless`: jobs that were to leave for one that is gone.

    `saved`: of each job that is to leave and has saved its work since it was told to, the newest checkpoint.
    """

    turns: Collection[JobName] = ()
    needless: Collection[JobName] = ()
    saved: Mapping[JobName, CheckpointRecord] = field(default_factory=dict)

    def answered(self, stop: Intent) -> CheckpointRecord | None:
        """The checkpoint by which a gang has answered what it was told; None: it has not."""
        return self.saved.get(stop.job)


NOTHING_SAVED = SaveStatus()


def request_number(stop: Intent) -> int:
    """The number of the request to save that belongs to a stop: the instant at which it was decided."""
    return int(stop.staged_at or stop.asked_at)


def saving_of(
    records: Iterable[JobRecord],
    intents: Iterable[Intent],
    policies: Mapping[str, CheckpointPolicy],
    registry: CheckpointRegistry,
) -> SaveStatus:
    """For every gang that is to leave and has not been told to end yet."""
    by_name = {record.name: record for record in records}
    stops = [intent for intent in intents if intent.kind == "stop" and intent.stage != "ends"]
    if not stops:
        return NOTHING_SAVED
    storages = {stop.job: _storage(by_name[stop.job], policies) for stop in stops}
    writing = [storages[stop.job] for stop in stops if stop.stage == "saves"]
    wanting = sorted((stop.asked_at, stop.job) for stop in stops if stop.stage == "waits-to-save")
    chosen = turns([(job, storages[job]) for _, job in wanting], writing, policies)
    saved = {stop.job: newest for stop in stops for newest in _saved_since(registry, stop)}
    needless = [stop.job for stop in stops if stop.beneficiary and not _waits(by_name.get(stop.beneficiary))]
    return SaveStatus(frozenset(chosen), frozenset(needless), saved)


def _waits(record: JobRecord | None) -> bool:
    """Whether a job still wants to run."""
    return record is not None and not (record.outcome or record.cancel_requested_by or record.suspended_by)


def _storage(record: JobRecord, policies: Mapping[str, CheckpointPolicy]) -> str:
    policy = storage_of(record.spec, policies)
    return policy.name if policy else ""


def _saved_since(registry: CheckpointRegistry, stop: Intent) -> Iterable[CheckpointRecord]:
    """The newest from the answer on. A gang saves on at its interval: what comes after the answer answers nothing by itself, and
    by the time that it is looked at, policy may keep the answer no longer.
    """
    own = [one for one in registry.of(stop.job) if one.attempt == stop.attempt]
    answers = [one.step for one in own if one.answers >= request_number(stop)]
    return [one for one in own if answers and one.step >= answers[-1] and one.state != "deleted"][:1]
