"""Devices for pods with ResourceClaims: given before they are bound, and taken back from those that are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.binder.intents import Pods
from reconciler.kubernetes.binder.journal import GangBinding, JournalUnreadableError, PodBinding, read
from reconciler.kubernetes.client.concurrency import gather
from reconciler.kubernetes.dra.allocator import NoDevices
from reconciler.kubernetes.dra.claim_status import Allotment, Key, readiness, releases
from reconciler.kubernetes.dra.claims import ClaimOutcome, Claims
from reconciler.kubernetes.dra.pod_claims import PodClaims
from reconciler.kubernetes.dra.wire import ResourceClaim
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.pod_view import as_view
from reconciler.kubernetes.objects.remarks import Missing, Refusal
from reconciler.model.clock import Clock
from solver.model.quantities import Instant
from solver.model.workload import JobName

Note = Callable[[str, JobName, str], object]
"""Is told what has happened to a job, and why."""


class _Given(NamedTuple):
    """A gang whose pods are to have devices, and what is to be written for that."""

    gang: GangBinding
    allotments: tuple[Allotment, ...]


@dataclass
class Devices:
    """Raises nothing of the server's: a gang whose devices are not ready is not bound, and looked at again in the next pass."""

    claims: Claims
    seen: PodClaims
    note: Note
    clock: Clock
    log: FilteringBoundLogger
    _waiting: set[str] = field(default_factory=set)
    """Uids of pods whose devices were given, and are not ready yet."""
    _unknown: set[Key] = field(default_factory=set)
    """Claims whose write was not answered: it may still arrive."""
    _noted: dict[JobName, tuple[str, str]] = field(default_factory=dict)
    """What was said last of jobs that are held up: passes come often."""

    async def given(self, gangs: Sequence[GangBinding], pods: Pods) -> tuple[GangBinding, ...]:
        """The gangs that may be bound now, with the devices that their claims have."""
        self._waiting.clear()
        wanted = {gang.job for gang in gangs}
        self._noted = {job: said for job, said in self._noted.items() if job in wanted}
        found = [self._decided(gang, pods) for gang in gangs]
        done = await gather(self._written(one, pods) for one in found if one is not None)
        return tuple(gang for gang in done if gang is not None)

    async def give_back(self, pods: Pods) -> int:
        """What is not needed any more is free; how many claims."""
        await gather(self._voided(key) for key in sorted(self._unknown))
        by_uid = {pod.metadata.uid: pod for pod in as_view(pods).claiming.values()}
        found = releases(self.seen.stock.claims, by_uid, self._waiting | _begun(pods), self.clock.now())
        for outcome in await gather(self.claims.release(release) for release in found):
            if outcome.answer not in ("done", "conflict"):  # a conflict: it is not as it was seen, and looked at again
                self.log.warning("claim-not-released", claim="/".join(outcome.key), error=outcome.why)
        return len(found)

    async def _voided(self, key: Key) -> None:
        outcome = await self.claims.voided(key)
        if outcome.answer in ("done", "gone"):
            self._unknown.discard(key)
            if outcome.claim is None or outcome.claim.status.allocation is None:
                self.seen.stock.forget(key)

    def _decided(self, gang: GangBinding, pods: Pods) -> _Given | None:
        asking = [(pods[pod.key], pod.node) for pod in gang.pods if pods[pod.key].spec.resource_claims]
        allotments = self.seen.stock.allot_all(asking, _written_time(self.clock.now())) if asking else ()
        if isinstance(allotments, NoDevices | Missing | Refusal):
            self._note_once("devices-refused", gang.job, str(allotments))
            return None
        return _Given(gang, allotments)

    async def _written(self, given: _Given, pods: Pods) -> GangBinding | None:
        gang = given.gang
        asking = [pods[pod.key] for pod in gang.pods if pods[pod.key].spec.resource_claims]
        if not asking:
            return gang
        outcomes = await self.claims.allot_all(given.allotments)
        wrong = next((outcome for outcome in outcomes if outcome.answer != "done"), None)
        for outcome in outcomes:
            if outcome.answer == "unknown":
                self._unknown.add(outcome.key)
            elif outcome.answer != "done":
                self.seen.stock.forget(outcome.key)
        if wrong is not None:
            self._note_once("devices-refused", gang.job, f"claim {'/'.join(wrong.key)}: {wrong.answer}: {wrong.why}")
            return None
        known = {claim.key: claim for claim in _claims_in(outcomes)}
        claims = [known.get(one.key, one) for pod in asking for one in self.seen.claims_of(pod)]
        standing = [readiness(claim, self.clock.now()) for claim in claims]
        unready = next((one for one in standing if one.state != "ready"), None)
        if unready is not None:
            self._waiting |= {pod.metadata.uid for pod in asking if unready.state == "waiting"}
            self._note_once(f"devices-{unready.state}", gang.job, unready.why)
            return None
        self._noted.pop(gang.job, None)
        return gang._replace(pods=tuple(self._with_devices(pod, pods) for pod in gang.pods))

    def _note_once(self, event: str, job: JobName, why: str) -> None:
        if self._noted.get(job) != (event, why):
            self._noted[job] = event, why
            self.note(event, job, why)

    def _with_devices(self, binding: PodBinding, pods: Pods) -> PodBinding:
        pod = pods[binding.key]
        return binding._replace(devices=self.seen.gpus_of(pod)) if pod.spec.resource_claims else binding


def _claims_in(outcomes: Iterable[ClaimOutcome]) -> Iterable[ResourceClaim]:
    return (outcome.claim for outcome in outcomes if outcome.claim)


def _begun(pods: Pods) -> set[str]:
    """Uids of pods that a journal says are to be bound."""
    found: set[str] = set()
    for pod in as_view(pods).noted.values():
        text = pod.metadata.annotations.get(names.GANG_PLAN)
        if text and pod.holds:
            try:
                found |= {one.uid for one in read(text).pods}
            except JournalUnreadableError:
                continue  # what finishes or releases the gang says so
    return found


def _written_time(now: Instant) -> str:
    at = datetime.fromtimestamp(int(now) / 1000, UTC)
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")
