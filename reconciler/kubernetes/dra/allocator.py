"""Which devices of a node a pod's claims get, if any; nodes that are built and used alike are tried once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from reconciler.kubernetes.dra.claim_demand import ClaimDemand
from reconciler.kubernetes.dra.prospects import NodeDevices, Prospect, prospect_of
from reconciler.kubernetes.dra.search import DeviceSearch, Lost, Pick, TooManyTriesError
from reconciler.kubernetes.dra.usage import DeviceUsage
from reconciler.kubernetes.objects.remarks import Refusal

KNOWN_MAX = 100_000
"""States of nodes of which it is remembered whether claims fit."""
KINDS_MAX = 10_000
"""Kinds of islands that are remembered, each for the wishes of one pod; where there come more, everything begins anew."""


class Grant(NamedTuple):
    """Devices for all claims of a pod. `rank`: 0 where each request got its first alternative, and more the later they are."""

    picks: tuple[Pick, ...]
    rank: int

    def of(self, claim: int) -> tuple[Pick, ...]:
        """Those of one claim, by its place in the pod."""
        return tuple(pick for pick in self.picks if pick.claim == claim)


class NoDevices(NamedTuple):
    """Why a node has no devices for claims. `request` "": each could be met for itself, but not all together."""

    claim: str
    request: str = ""
    wanted: int | None = None
    matching: int = 0
    free: int = 0
    problems: tuple[str, ...] = ()
    wrongs: tuple[Refusal, ...] = ()
    is_unknown: bool = False

    def __str__(self) -> str:
        if self.is_unknown:
            return "there are too many ways to try: ask for fewer devices at once, or with simpler constraints"
        if self.wrongs:
            return str(self.wrongs[0])
        if self.request:
            wanted = "all" if self.wanted is None else self.wanted
            said = f"claim {self.claim}, request {self.request}: wants {wanted}, {self.matching} match and {self.free} are free"
        else:
            said = (
                f"claim {self.claim}: its devices are free, but constraints or shared counters rule them out together"
            )
        return "; ".join((said, *self.problems))


class Allocator:
    """Remembers what it has found out: give it the same NodeDevices for a node for as long as nothing about its devices changes."""

    def __init__(self) -> None:
        self._kinds: dict[Hashable, int] = {}
        self._lost: Lost = {}
        self._prospects: dict[str, tuple[NodeDevices, dict[Hashable, Prospect]]] = {}
        self._known: dict[Hashable, bool] = {}
        self.searches = 0
        """How often it has searched rather than remembered."""

    def grant(self, there: NodeDevices, claims: Sequence[ClaimDemand], usage: DeviceUsage) -> Grant | NoDevices:
        """Devices for these claims, or why there are none."""
        signatures = tuple(claim.signature for claim in claims)
        prospect = self._prospect(there, claims, signatures)
        search = DeviceSearch(prospect, claims, usage, self._lost)
        key = (signatures, search.state)
        picks: tuple[Pick, ...] | None = None
        if self._known.get(key, True):
            self.searches += 1
            try:
                picks = search.found()
            except TooManyTriesError:
                return NoDevices(claims[0].claim, is_unknown=True)
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[key] = picks is not None
        if picks is None:
            return _why(prospect, claims, DeviceSearch(prospect, claims, usage, self._lost))
        return Grant(picks, _rank(claims, picks))

    def fits(self, there: NodeDevices, claims: Sequence[ClaimDemand], usage: DeviceUsage) -> bool:
        """Whether there are devices for these claims."""
        signatures = tuple(claim.signature for claim in claims)
        search = DeviceSearch(self._prospect(there, claims, signatures), claims, usage, self._lost)
        known = self._known.get((signatures, search.state))
        return isinstance(self.grant(there, claims, usage), Grant) if known is None else known

    def _prospect(self, there: NodeDevices, claims: Sequence[ClaimDemand], signatures: Hashable) -> Prospect:
        if len(self._kinds) > KINDS_MAX:
            for remembered in (self._kinds, self._lost, self._prospects, self._known):
                remembered.clear()
        name = there.node.metadata.name
        known = self._prospects.get(name)
        if known is None or known[0] is not there:
            known = self._prospects[name] = there, {}
        if signatures not in known[1]:
            known[1][signatures] = prospect_of(there, claims, self._kinds)
        return known[1][signatures]


def _rank(claims: Sequence[ClaimDemand], picks: Sequence[Pick]) -> int:
    taken = {(pick.claim, pick.alternative.name) for pick in picks}
    return sum(
        place
        for number, claim in enumerate(claims)
        for request in claim.requests
        for place, alternative in enumerate(request)
        if (number, alternative.name) in taken
    )


def _why(prospect: Prospect, claims: Sequence[ClaimDemand], search: DeviceSearch) -> NoDevices:
    for number, claim in enumerate(claims):
        for which, request in enumerate(claim.requests):
            matching = [len(each) for each in prospect.fitting[number][which]]
            free = [search.free(number, which, place) for place in range(len(request))]
            wanted = [each.number for each in request]
            if all(one < (least or max(1, all_)) for one, least, all_ in zip(free, wanted, matching, strict=True)):
                name = request[0].name if len(request) == 1 else request[0].request
                return NoDevices(claim.claim, name, wanted[0], matching[0], free[0], prospect.problems, prospect.wrongs)
    return NoDevices(claims[0].claim, problems=prospect.problems, wrongs=prospect.wrongs)
