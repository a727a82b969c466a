"""The devices that all claims of a pod get on one node: found whenever there are such, and the same ones each time.

Depth first over the requests in their order, alternatives in theirs. What makes it quick: of devices that are alike in islands
that are used alike one is tried; a state that has failed is not tried again, in whatever order it came about; and for a request
that wants more than there is nothing is tried. Of several that would do, the one that leaves most others possible is tried first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.kubernetes.dra.claim_demand import Alternative, ClaimDemand
from reconciler.kubernetes.dra.pools import Device, Number
from reconciler.kubernetes.dra.prospects import Prospect
from reconciler.kubernetes.dra.usage import DeviceUsage
from reconciler.kubernetes.dra.wire import RESULTS_MAX

TRIES_MAX = 20_000
"""Devices taken on trial, after which a node is given up: about a second. Ordinary claims need fewer than a hundred."""
REMEMBERED_MAX = 50_000
"""States of islands whose order of trial is remembered."""

State = tuple[int, tuple[Number, ...], tuple[bool, ...]]
"""Of an island: its kind, what is left of its counters, and which of its devices are taken."""
Lost = dict[State, tuple[int, ...]]
"""By the state of an island: of each device, how many others can't be had any more when it is taken."""


class TooManyTriesError(Exception):
    """It is not known whether the claims fit: there are too many ways to try."""


class Pick(NamedTuple):
    """A device for a request of a claim; `claim` is its place in the pod."""

    claim: int
    alternative: Alternative
    device: Device


class _Position(NamedTuple):
    """Where the search stands. `left`: devices that the request still lacks; `alternative` -1: none has been chosen for it."""

    claim: int
    request: int
    alternative: int = -1
    left: int = 0


class _Choice(NamedTuple):
    """Devices taken together, and where that leads."""

    alternative: Alternative
    devices: tuple[int, ...]
    following: _Position


@dataclass(slots=True)
class _Frame:
    position: _Position
    choices: Iterator[_Choice]
    taken: _Choice | None = None


@dataclass(slots=True)
class _Rules:
    """What the constraints of one claim have come to. `columns`: their places among all of the pod; `chosen`: devices of each."""

    columns: range
    chosen: list[list[int]] = field(default_factory=list)


class DeviceSearch:
    """One search, from the present usage. `lost` is remembered from search to search."""

    def __init__(self, prospect: Prospect, claims: Sequence[ClaimDemand], usage: DeviceUsage, lost: Lost) -> None:
        self._prospect = prospect
        self._claims = claims
        self._lost = lost
        self._taken = [usage.has(device) for device in prospect.devices]
        self._left: list[list[Number]] = [
            [total - usage.of(counter) for counter, total in zip(island.counters, island.totals, strict=True)]
            for island in prospect.islands
        ]
        self._states: list[State | None] = [None] * len(prospect.islands)
        self._rules: list[_Rules] = []
        for claim in claims:
            begin = self._rules[-1].columns.stop if self._rules else 0
            columns = range(begin, begin + len(claim.rules))
            self._rules.append(_Rules(columns, [[] for _ in columns]))
        self._picked: list[Pick] = []
        self._tries = 0

    @property
    def state(self) -> Hashable:
        """Equal for nodes on which the same can be had."""
        return tuple(sorted(self._state(island) for island in range(len(self._states)))), bool(self._prospect.problems)

    def found(self) -> tuple[Pick, ...] | None:
        """In the order of claims and requests; None where there is no way. Raises TooManyTriesError."""
        start = self._boundary(0, 0)
        if start is None:
            return ()
        failed: set[Hashable] = set()
        frames = [_Frame(start, self._choices(start))]
        while frames:
            frame = frames[-1]
            if frame.taken:
                self._put_back(frame.position, frame.taken)
            frame.taken = choice = next(frame.choices, None)
            if choice is None:
                failed.add(self._key(frame.position))
                frames.pop()
            elif not self._take(frame.position, choice):
                frame.taken = None
            elif (following := self._boundary(*choice.following)) is None:
                return tuple(self._picked)
            elif not failed or self._key(following) not in failed:
                frames.append(_Frame(following, self._choices(following)))
        return None

    def free(self, claim: int, request: int, alternative: int) -> int:
        """How many of the devices that would do can be had, each for itself."""
        return sum(1 for device in self._prospect.fitting[claim][request][alternative] if self._can_be_had(device))

    def _boundary(self, claim: int, request: int, alternative: int = -1, left: int = 0) -> _Position | None:
        """The position, or the next request's if this one has all it wants; None at the end."""
        if left:
            return _Position(claim, request, alternative, left)
        while claim < len(self._claims) and request >= len(self._claims[claim].requests):
            claim, request = claim + 1, 0
        return _Position(claim, request) if claim < len(self._claims) else None

    def _choices(self, at: _Position) -> Iterator[_Choice]:
        if at.alternative >= 0:
            yield from self._of_alternative(at, at.alternative, at.left)
            return
        for number, alternative in enumerate(self._claims[at.claim].requests[at.request]):
            yield from self._of_alternative(at, number, alternative.number)

    def _of_alternative(self, at: _Position, number: int, count: int | None) -> Iterator[_Choice]:
        alternative = self._claims[at.claim].requests[at.request][number]
        candidates = self._prospect.fitting[at.claim][at.request][number]
        wanted = len(candidates) if count is None else count
        given = sum(1 for pick in self._picked if pick.claim == at.claim)
        if not wanted or given + wanted > RESULTS_MAX:
            return
        if count is None:
            if not self._prospect.problems:
                yield _Choice(alternative, candidates, _Position(at.claim, at.request + 1))
            return
        free = [device for device in candidates if self._can_be_had(device)]
        if len(free) < wanted:
            return
        following = _Position(at.claim, at.request, number, wanted - 1)
        if wanted == 1:
            following = _Position(at.claim, at.request + 1)
        for device in self._unlike(free, at.claim):
            yield _Choice(alternative, (device,), following)

    def _unlike(self, free: Sequence[int], claim: int) -> list[int]:
        """Of devices that are alike the first. In the order of trial: islands in use first, then what costs others least."""
        first: dict[Hashable, tuple[bool, int, int]] = {}
        marks = self._marks(claim)
        for device in free:
            name, spot = self._prospect.home[device]
            island = self._prospect.islands[name]
            state = self._state(name)
            if (state, spot, marks.get(name)) not in first:
                is_whole = self._left[name] == list(island.totals)
                first[state, spot, marks.get(name)] = is_whole, self._losses(name, state)[spot], device
        return [device for _, _, device in sorted(first.values())]

    def _losses(self, name: int, state: State) -> tuple[int, ...]:
        known = self._lost.get(state)
        if known is None:
            if len(self._lost) >= REMEMBERED_MAX:
                self._lost.clear()
            known = self._lost[state] = self._counted_losses(name)
        return known

    def _counted_losses(self, name: int) -> tuple[int, ...]:
        island, left = self._prospect.islands[name], self._left[name]
        if not island.counters:
            return (0,) * len(island.devices)
        there = [uses for device, uses in zip(island.devices, island.uses, strict=True) if self._can_be_had(device)]
        lost = []
        for uses in island.uses:
            after = list(left)
            for counter, number in uses:
                after[counter] -= number
            lost.append(sum(1 for other in there if any(after[counter] < number for counter, number in other)))
        return tuple(lost)

    def _can_be_had(self, device: int) -> bool:
        if self._taken[device]:
            return False
        name, spot = self._prospect.home[device]
        left = self._left[name]
        return all(left[counter] >= number for counter, number in self._prospect.islands[name].uses[spot])

    def _take(self, at: _Position, choice: _Choice) -> bool:
        for number, device in enumerate(choice.devices):
            self._tries += 1
            if self._tries > TRIES_MAX:
                raise TooManyTriesError
            if not self._can_be_had(device) or not self._keeps_rules(at.claim, choice.alternative, device):
                self._put_back(at, choice._replace(devices=choice.devices[:number]))
                return False
            self._use(device, 1)
            self._taken[device] = True
            for chosen in self._speaking(at.claim, choice.alternative):
                chosen.append(device)
            self._picked.append(Pick(at.claim, choice.alternative, self._prospect.devices[device]))
        return True

    def _put_back(self, at: _Position, choice: _Choice) -> None:
        for device in reversed(choice.devices):
            self._use(device, -1)
            self._taken[device] = False
            for chosen in self._speaking(at.claim, choice.alternative):
                chosen.pop()
            self._picked.pop()

    def _use(self, device: int, sign: int) -> None:
        name, spot = self._prospect.home[device]
        for counter, number in self._prospect.islands[name].uses[spot]:
            self._left[name][counter] -= sign * number
        self._states[name] = None

    def _speaking(self, claim: int, alternative: Alternative) -> list[list[int]]:
        rules = zip(self._claims[claim].rules, self._rules[claim].chosen, strict=True)
        return [chosen for rule, chosen in rules if rule.means(alternative)]

    def _keeps_rules(self, claim: int, alternative: Alternative, device: int) -> bool:
        kept = self._rules[claim]
        for rule, column, chosen in zip(self._claims[claim].rules, kept.columns, kept.chosen, strict=True):
            if not rule.means(alternative):
                continue
            value = self._prospect.values[device][column]
            others = [self._prospect.values[other][column] for other in chosen]
            if value is None or (value in others if rule.is_distinct else any(other != value for other in others)):
                return False
        return True

    def _state(self, name: int) -> State:
        state = self._states[name]
        if state is None:
            island = self._prospect.islands[name]
            taken = tuple(self._taken[device] for device in island.devices)
            state = self._states[name] = (island.kind, tuple(self._left[name]), taken)
        return state

    def _key(self, at: _Position) -> Hashable:
        """Equal for states from which the same can be reached."""
        given = sum(1 for pick in self._picked if pick.claim == at.claim)
        marks = self._marks(at.claim)
        islands = sorted((self._state(name), marks.get(name, ())) for name in range(len(self._states)))
        return at, given, frozenset(self._shared_values(at.claim)), tuple(islands)

    def _marks(self, claim: int) -> dict[int, tuple[tuple[int, int], ...]]:
        """By island: values that a claim's rules have met there and that no other has, each by the first place that has it."""
        found: dict[int, set[tuple[int, int]]] = {}
        for column, device in self._met(claim):
            if self._prospect.local[device][column]:
                name, _ = self._prospect.home[device]
                value = self._prospect.values[device][column]
                island = self._prospect.islands[name].devices
                first = next(spot for spot, other in enumerate(island) if self._prospect.values[other][column] == value)
                found.setdefault(name, set()).add((column, first))
        return {name: tuple(sorted(marks)) for name, marks in found.items()}

    def _shared_values(self, claim: int) -> Iterator[Hashable]:
        """Values that a claim's rules have met and that several islands have."""
        for column, device in self._met(claim):
            if not self._prospect.local[device][column]:
                yield column, self._prospect.values[device][column]

    def _met(self, claim: int) -> Iterator[tuple[int, int]]:
        kept = self._rules[claim]
        return ((column, device) for column, chosen in zip(kept.columns, kept.chosen, strict=True) for device in chosen)
