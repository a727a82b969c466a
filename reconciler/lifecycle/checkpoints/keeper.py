"""Keeps checkpoints: what is whole is published and recorded, then read again, and in the end deleted. One step at a time.

Everything it does follows from the storage and the registry, and may be done twice: it can be killed anywhere. It remembers only
how far it has read and what was not whole, and begins that anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconciler.lifecycle.checkpoints.manifest import MANIFEST, PARTS, Manifest, StepFolder, step_folder
from reconciler.lifecycle.checkpoints.publication import manifest_of
from reconciler.lifecycle.checkpoints.retention import expired_checkpoints
from reconciler.lifecycle.checkpoints.storage import ReadEnoughError, RefusedEntryError, Storage, StorageUnusableError
from reconciler.lifecycle.checkpoints.turns import storage_of
from reconciler.lifecycle.checkpoints.verification import Verification, verification_steps
from reconciler.model.checkpoint_findings import AnyFinding
from reconciler.model.checkpoint_policy import CheckpointPolicy
from reconciler.model.checkpoint_record import CheckpointKey, CheckpointRecord
from reconciler.model.job_record import JobRecord
from reconciler.protocols.backend import Epoch
from reconciler.protocols.checkpoints import CheckpointRegistry
from reconciler.protocols.history import Event
from reconciler.protocols.ledger import Claim
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName
from solver.plan.reason import count

PUBLISHED: Final = "checkpoint-published"
VERIFIED: Final = "checkpoint-verified"
CORRUPT: Final = "checkpoint-corrupt"
DELETED: Final = "checkpoint-deleted"

PARTIAL_AGE_MAX = Duration(24 * 3_600_000)
"""For how long a checkpoint may be written to before it counts as one that will never be whole."""

BYTES_PER_STEP = 2**30
"""What is read again in one step, so that publishing never waits for long."""

FOLDERS_MAX = 1_000
"""How many checkpoints of a job that are not whole yet are looked at: the newest."""

READING_MAX = 64
"""How many checkpoints are being read at once, each with an open file and its manifest in memory."""


@dataclass(frozen=True, slots=True)
class Unwhole:
    """A checkpoint that was not whole when its parts were in this `state`, None: read it again; `problem`: why, if that is told."""

    state: int | None
    problem: str


@dataclass(frozen=True, slots=True)
class KeeperResult:
    """What came of a step: events of jobs, and what an operator has to see to, by the name of its policy, or of policy and job."""

    events: tuple[Event, ...]
    problems: Mapping[str, str]


@dataclass
class Keeper:
    """Call `step` again and again, from one thread. `actor` signs the events."""

    registry: CheckpointRegistry
    actor: str
    open_storage: Callable[[str], Storage] = Storage
    bytes_per_step: int = BYTES_PER_STEP
    _reading: dict[CheckpointKey, Verification] = field(default_factory=dict)
    _turns: dict[JobName, int] = field(default_factory=dict)
    _turn: int = 0
    _unwhole: dict[JobName, dict[StepFolder, Unwhole]] = field(default_factory=dict)

    def step(
        self,
        epoch: Epoch,
        policies: Mapping[str, CheckpointPolicy],
        records: Sequence[JobRecord],
        claims: Sequence[Claim],
        now: Instant,
    ) -> KeeperResult:
        """`records`: the jobs with folders that are looked at. Raises StaleEpochError, StoreUnusableError."""
        running = {claim.job: claim.attempt for claim in claims}
        events: list[Event] = []
        problems: dict[str, str] = {}
        looked_at = {record.name for record in records}
        self._unwhole = {job: folders for job, folders in self._unwhole.items() if job in looked_at}
        for record in records:
            policy = storage_of(record.spec, policies)
            if policy is None or policy.name in problems:
                continue
            try:
                for event in self._look(epoch, policy, record, running.get(record.name), problems, now):
                    events.append(event)  # noqa: PERF402  (what happened before it failed did happen)
            except StorageUnusableError as error:
                problems |= self._problem(policy, record.name, error)
        waiting = [record.name for record in records if record.outcome is None and record.name not in running]
        events += self._verify(epoch, policies, waiting, problems, now)
        return KeeperResult(tuple(events), problems)

    def _look(
        self,
        epoch: Epoch,
        policy: CheckpointPolicy,
        record: JobRecord,
        running: int | None,
        problems: dict[str, str],
        now: Instant,
    ) -> Iterator[Event]:
        """One job's folder: what is new in it, what will never be whole, what has to go."""
        job = record.name
        storage = self.open_storage(policy.folder_of(job))
        known = {StepFolder(one.attempt, one.step): one for one in self.registry.of(job)}
        folders = set(filter(None, map(step_folder, storage.names(""))))
        for folder in sorted(folders & known.keys()):
            if known[folder].state == "deleted":
                _remove(storage, folder)
        unknown = sorted(folders - known.keys())
        before = self._unwhole.pop(job, {})
        if len(unknown) > FOLDERS_MAX:
            told = f"of {len(unknown)} checkpoints that are not whole only the newest {FOLDERS_MAX} are looked at"
            problems[f"{policy.name}/{job}"] = f"{storage.url}: {told}"
        for folder in unknown[-FOLDERS_MAX:]:
            manifest, unwhole = self._read(storage, record, folder, before.get(folder))
            if unwhole is not None:
                self._unwhole.setdefault(job, {})[folder] = unwhole
                if unwhole.problem:  # It never will be whole; others of the job are.
                    problems[f"{policy.name}/{job}"] = unwhole.problem
            if manifest is not None:
                yield self._record(epoch, policy, storage, manifest, now)
            elif _is_abandoned(storage, folder, now):
                _remove(storage, folder)
        yield from self._retain(epoch, policy, storage, job, running, now)

    @staticmethod
    def _read(
        storage: Storage, record: JobRecord, folder: StepFolder, before: Unwhole | None
    ) -> tuple[Manifest | None, Unwhole | None]:
        """The manifest of a checkpoint that is whole; else what is worth knowing when it is looked at again."""
        state, problem = storage.state_of(f"{folder}/{PARTS}"), ""
        if before is not None and state is not None and state == before.state:
            return None, before
        try:
            manifest = manifest_of(storage, record.name, folder, record.spec.tasks)
        except RefusedEntryError as error:
            manifest, problem = None, str(error)
            if isinstance(error, ReadEnoughError):
                state = None  # The next look has room for it: what this one has read is remembered.
        return manifest, None if manifest is not None else Unwhole(state, problem)

    def _record(
        self, epoch: Epoch, policy: CheckpointPolicy, storage: Storage, manifest: Manifest, now: Instant
    ) -> Event:
        folder = StepFolder(manifest.attempt, manifest.step)
        known = CheckpointRecord(
            manifest.job,
            manifest.attempt,
            manifest.step,
            policy.name,
            f"{storage.url}/{folder}",
            manifest.world_size,
            manifest.size,
            manifest.digest,
            now,
            manifest.answers,
        )
        self.registry.record(epoch, known)
        saved = f"saved by {count(known.world_size, 'task')}, {int(known.size)} bytes, in {known.url}"
        return self._event(now, PUBLISHED, known.key, saved)

    def _retain(
        self,
        epoch: Epoch,
        policy: CheckpointPolicy,
        storage: Storage,
        job: JobName,
        running: int | None,
        now: Instant,
    ) -> Iterator[Event]:
        checkpoints = tuple(one for one in self.registry.of(job) if one.storage == policy.name)
        needed = {one.key for one in checkpoints if running is not None and one.resumed_by == running}
        for checkpoint in expired_checkpoints(checkpoints, policy, needed, now):
            self.registry.delete(epoch, checkpoint.key)
            self._reading.pop(checkpoint.key, None)
            _remove(storage, StepFolder(checkpoint.attempt, checkpoint.step))
            yield self._event(now, DELETED, checkpoint.key, f"CheckpointPolicy {policy.name} keeps it no longer")

    def _verify(
        self,
        epoch: Epoch,
        policies: Mapping[str, CheckpointPolicy],
        waiting: Collection[JobName],
        problems: dict[str, str],
        now: Instant,
    ) -> Iterator[Event]:
        """Read on where an earlier step stopped, until this one has read its share.

        What has used up the share of a step lets others go first: a sparse file can have more bytes than are ever read.
        """
        left = self.bytes_per_step
        verified = {name for name, policy in policies.items() if policy.verify and name not in problems}
        for checkpoint in self._in_turn(self.registry.unjudged(verified, waiting), waiting):
            if left <= 0 or checkpoint.storage in problems:
                continue
            folder = StepFolder(checkpoint.attempt, checkpoint.step)
            try:
                if checkpoint.key not in self._reading:
                    storage = self.open_storage(checkpoint.url.removesuffix(f"/{folder}"))
                    self._reading[checkpoint.key] = verification_steps(
                        storage, checkpoint.job, folder, checkpoint.digest
                    )
                while left > 0:
                    left -= next(self._reading[checkpoint.key])
                self._turn += 1
                self._turns[checkpoint.job] = self._turn
            except StopIteration as over:
                del self._reading[checkpoint.key]
                yield self._judge(epoch, checkpoint.key, over.value, now)
            except StorageUnusableError as error:
                self._reading.pop(checkpoint.key, None)
                problems |= self._problem(policies[checkpoint.storage], checkpoint.job, error)

    def _in_turn(
        self, unjudged: Collection[CheckpointRecord], waiting: Collection[JobName]
    ) -> tuple[CheckpointRecord, ...]:
        """Those of jobs that wait for it first, and among them those of jobs with the last turn longest ago."""
        keys = {one.key for one in unjudged}
        self._turns = {one.job: self._turns.get(one.job, 0) for one in unjudged}
        self._reading = {key: reading for key, reading in self._reading.items() if key in keys}
        chosen = [one for one in unjudged if one.key in self._reading or len(self._reading) < READING_MAX]
        return tuple(sorted(chosen, key=lambda one: (one.job not in waiting, self._turns[one.job])))

    def _problem(self, policy: CheckpointPolicy, job: JobName, error: StorageUnusableError) -> dict[str, str]:
        """Named after the storage, which is left alone until the next step; or after the job, if the storage answers others."""
        try:
            concerns_all = not self.open_storage(policy.storage).is_reachable()
        except StorageUnusableError:
            concerns_all = True
        return {policy.name if concerns_all else f"{policy.name}/{job}": str(error)}

    def _judge(self, epoch: Epoch, key: CheckpointKey, findings: tuple[AnyFinding, ...], now: Instant) -> Event:
        self.registry.judge(epoch, key, findings)
        if not findings:
            return self._event(now, VERIFIED, key, "every shard is as it was written")
        first, more = str(findings[0]), len(findings) - 1
        return self._event(now, CORRUPT, key, f"{first}{f', and {more} more' if more else ''}")

    def _event(self, now: Instant, kind: str, key: CheckpointKey, cause: str) -> Event:
        return Event(
            now, kind, key.job, f"step {key.step} of attempt {key.attempt}: {cause}", self.actor, attempt=key.attempt
        )


def _remove(storage: Storage, folder: StepFolder) -> None:
    """The manifest goes first: what is left of a checkpoint half deleted is never taken for one."""
    storage.delete(f"{folder}/{MANIFEST}")
    storage.delete(str(folder))


def _is_abandoned(storage: Storage, folder: StepFolder, now: Instant) -> bool:
    changed_at = storage.changed_at(str(folder))
    return changed_at is not None and now - changed_at > PARTIAL_AGE_MAX
