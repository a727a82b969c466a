"""The writes that give claims their devices and take them back, one leader at a time; what was begun can be gone on with by any."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from reconciler.kubernetes.binder.binding import Leads, still
from reconciler.kubernetes.binder.outcomes import Failure, failure_of
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.concurrency import gather
from reconciler.kubernetes.client.refusals import (
    KubernetesError,
    NotFoundError,
)
from reconciler.kubernetes.dra.claim_status import Allotment, ClaimRelease, Key
from reconciler.kubernetes.dra.wire import CLAIMS, FINALIZER, Allocation, Consumer, ResourceClaim
from reconciler.kubernetes.objects.wire import read
from reconciler.protocols.backend import StaleEpochError
from reconciler.protocols.ledger import NotLeaderError

Answer = Literal["done"] | Failure
"""What became of a claim. `gone`: this claim is no more, or is leaving. `conflict`: it got other devices elsewhere. `stale-leader`:
we do not lead. `refused`: a person has to act. `unsent`: nothing was done. `unknown`: look later."""

TRIES_MAX = 4
"""A claim that others write to (drivers, labels) while it is written is read and written again so often."""


class ClaimOutcome(NamedTuple):
    """What became of a claim; `claim` as it is then, where that is known, and `why` in words where it is not done."""

    key: Key
    answer: Answer
    claim: ResourceClaim | None = None
    why: str = ""


class Claims:
    """Writes claims under a leadership. It raises nothing of the server's: what was not done is told."""

    def __init__(self, api: Api, leads: Leads) -> None:
        self._api = api
        self._leads = leads

    async def allot_all(self, wanted: Iterable[Allotment]) -> tuple[ClaimOutcome, ...]:
        """Several at once, those of one claim in the order they are given: what comes after one that is not done is not sent."""
        by_claim: dict[Key, list[Allotment]] = {}
        for one in wanted:
            by_claim.setdefault(one.claim.key, []).append(one)
        told = await gather(self._in_turn(several) for several in by_claim.values())
        return tuple(outcome for outcomes in told for outcome in outcomes)

    async def _in_turn(self, wanted: Iterable[Allotment]) -> list[ClaimOutcome]:
        outcomes: list[ClaimOutcome] = []
        for one in wanted:
            outcomes.append(await self.allot(one))
            if outcomes[-1].answer != "done":
                break
        return outcomes

    async def allot(self, wanted: Allotment) -> ClaimOutcome:
        """The finalizer first, then devices and the pod in one write.

        A claim that has exactly that is done, so that it may be asked for again. An allocation with no pod bound to it is
        the record of what was begun: see standing.releases.
        """
        claim = wanted.claim
        outcome = ClaimOutcome(claim.key, "unknown")
        for _ in range(TRIES_MAX):
            if (judged := _judged(claim, wanted)) is not None:
                return judged
            try:
                return ClaimOutcome(claim.key, "done", await self._given(claim, wanted))
            except (KubernetesError, NotLeaderError, StaleEpochError) as error:
                outcome = ClaimOutcome(claim.key, failure_of(error), None, str(error))
            if outcome.answer not in ("conflict", "unknown"):
                return outcome
            seen = await self._seen(claim)
            if isinstance(seen, ClaimOutcome):
                return seen._replace(why=f"{outcome.why}; {seen.why}")
            claim = seen
        return outcome

    async def voided(self, key: Key) -> ClaimOutcome:
        """The claim after a write that was not answered: should that still be on its way, it is refused from now on."""
        try:
            seen = await self._api.get(CLAIMS.path(*key), ResourceClaim)
            return ClaimOutcome(key, "done", await self._finalizers(seen, list(seen.metadata.finalizers)))
        except (KubernetesError, NotLeaderError, StaleEpochError) as error:
            return ClaimOutcome(key, failure_of(error), None, str(error))

    async def release(self, wanted: ClaimRelease) -> ClaimOutcome:
        """Pods that are over are taken off; with the last of them the devices, and then the finalizer.

        The claim has to be as it was seen: a pod that reserves it meanwhile keeps it, and the next pass looks again.
        """
        claim = wanted.claim
        try:
            if claim.status.allocation is not None:
                kept = [_written(consumer) for consumer in wanted.keep]
                status = {"reservedFor": kept} if kept else {"reservedFor": None, "allocation": None, "devices": None}
                claim = await self._status(claim, status)
            if claim.status.allocation is None and FINALIZER in claim.metadata.finalizers:
                left = [each for each in claim.metadata.finalizers if each != FINALIZER]
                claim = await self._finalizers(claim, left)
        except NotFoundError:
            return ClaimOutcome(claim.key, "done")  # it was deleted, and waited for nothing else
        except (KubernetesError, NotLeaderError, StaleEpochError) as error:
            return ClaimOutcome(claim.key, failure_of(error), None, str(error))
        return ClaimOutcome(claim.key, "done", claim)

    async def _given(self, claim: ResourceClaim, wanted: Allotment) -> ResourceClaim:
        if FINALIZER not in claim.metadata.finalizers:
            claim = await self._finalizers(claim, [*claim.metadata.finalizers, FINALIZER])
        users = (*claim.status.reserved_for, wanted.pod)
        status: dict[str, Any] = {"reservedFor": [_written(consumer) for consumer in users]}
        if claim.status.allocation is None:
            status["allocation"] = wanted.allocation
        return await self._status(claim, status)

    async def _finalizers(self, claim: ResourceClaim, finalizers: list[str]) -> ResourceClaim:
        lead = self._leads()
        metadata = {
            "resourceVersion": claim.metadata.resource_version,
            "finalizers": finalizers,
            "annotations": lead.stamp,
        }
        sent = await self._api.patch(CLAIMS.path(*claim.key), {"metadata": metadata}, still(self._leads, lead))
        return read(sent, ResourceClaim)

    async def _status(self, claim: ResourceClaim, status: dict[str, Any]) -> ResourceClaim:
        lead = self._leads()
        path = f"{CLAIMS.path(*claim.key, 'status')}?fieldManager={quote(lead.field_manager, safe='')}"
        body = {"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status}
        return read(await self._api.patch(path, body, still(self._leads, lead)), ResourceClaim)

    async def _seen(self, before: ResourceClaim) -> ResourceClaim | ClaimOutcome:
        """The claim as it is, if it is still the same one."""
        try:
            seen = await self._api.get(CLAIMS.path(*before.key), ResourceClaim)
        except NotFoundError:
            return ClaimOutcome(before.key, "gone", None, "it is no more")
        except KubernetesError as blind:
            return ClaimOutcome(before.key, "unknown", None, str(blind))
        if seen.metadata.uid != before.metadata.uid:
            return ClaimOutcome(before.key, "gone", None, "another claim has its name")
        return seen


def _judged(claim: ResourceClaim, wanted: Allotment) -> ClaimOutcome | None:
    """What there is to say of a claim without writing it; None: it is to be written."""
    if claim.metadata.deletion_timestamp:
        return ClaimOutcome(claim.key, "gone", claim, "it is being deleted")
    has = claim.status.allocation
    if has is None:
        if wanted.allocation is None:
            return ClaimOutcome(claim.key, "conflict", claim, "it has lost its devices")
        return None
    if wanted.allocation is not None and has.devices != read(wanted.allocation, Allocation).devices:
        return ClaimOutcome(claim.key, "conflict", claim, "it has other devices")
    if any(consumer.uid == wanted.pod.uid for consumer in claim.status.reserved_for):
        return ClaimOutcome(claim.key, "done", claim)
    return None


def _written(consumer: Consumer) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(consumer)
    return {key: value for key, value in built.items() if value}
