"""What is wrong with RateCard documents: times that overlap or end too early, several currencies, prices that never count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from reconciler.documents.declarations import Declaration
from reconciler.model.problem import Problem, did_you_mean
from reconciler.model.rate_card import RateCard

Cards = Sequence[Declaration[RateCard]]


def rate_card_problems(
    documents: Cards, gpu_types: set[str] | None, pools: set[str] | None, classes: set[str] | None
) -> Iterator[Problem]:
    """What no schema can say. `gpu_types`, `pools`, `classes`: the names of all; None where some are unreadable."""
    ordered = sorted(documents, key=lambda card: (card.value.start, card.name))
    for card in ordered:
        yield from _own_problems(card)
    for before, card in pairwise(ordered):
        yield from _overlap(before, card)
    for card in ordered[1:]:
        if card.value.currency != ordered[0].value.currency:
            message = (
                f"prices are in {ordered[0].value.currency} at {ordered[0].origin}, and can't be added up with these"
            )
            yield card.problem(("spec", "currency"), "second-currency", message, "Write all RateCards in one currency.")
    # Pools and types of the past are rightly named by the cards of their time.
    for card in ordered[-1:]:
        yield from _unknown_names(card, gpu_types, pools, classes)


def _overlap(before: Declaration[RateCard], card: Declaration[RateCard]) -> Iterator[Problem]:
    if before.value.start == card.value.start:
        message = f"RateCard {before.name}, at {before.origin}, begins at that very time, too"
        yield card.problem(("spec", "from"), "overlapping-rate-cards", message, "Delete one, or let it begin later.")
    elif before.value.until is not None and before.value.until > card.value.start:
        message = f"RateCard {before.name}, at {before.origin}, counts until {before.value.until}"
        fix = f"Write until: {card.value.start} there, or leave it out: a card ends where the next begins."
        yield card.problem(("spec", "from"), "overlapping-rate-cards", message, fix)


def _own_problems(card: Declaration[RateCard]) -> Iterator[Problem]:
    spec = card.value
    if spec.until is not None and spec.until <= spec.start:
        message = f"it ends at {spec.until}, and begins at {spec.start}"
        yield card.problem(("spec", "until"), "ends-before-it-begins", message, "Let it end later, or leave until out.")
    if not is_zone(spec.time_zone):
        message, fix = f"there is no time zone {spec.time_zone}", "Write it as the IANA database does: Europe/Berlin."
        yield card.problem(("spec", "timeZone"), "unknown-time-zone", message, fix)
    for index, rate in enumerate(spec.rates):
        at = ("spec", "rates", index)
        if rate.minutes[0] == rate.minutes[1]:
            message = f"{rate.hours} is no time at all"
            yield card.problem((*at, "hours"), "no-time", message, "For the whole day leave hours out.")
        covering = next((place for place, other in enumerate(spec.rates[:index]) if other.covers(rate)), None)
        if covering is not None:
            message = f"what fits this rate fits rate {covering + 1} before it, so that it never counts"
            yield card.problem(at, "never-counts", message, "Put the narrower one first, or delete one.")


def _unknown_names(
    card: Declaration[RateCard], gpu_types: set[str] | None, pools: set[str] | None, classes: set[str] | None
) -> Iterator[Problem]:
    for index, rate in enumerate(card.value.rates):
        named = (
            ("gpuType", "unknown-gpu-type", f"GPU type {rate.gpu_type}", rate.gpu_type, gpu_types),
            ("pool", "unknown-pool", f"NodePool {rate.pool}", rate.pool, pools),
            (
                "priorityClass",
                "unknown-priority-class",
                f"PriorityClass {rate.priority_class}",
                rate.priority_class,
                classes,
            ),
        )
        for field, code, told, name, known in named:
            if name and known is not None and name not in known:
                at, fix = ("spec", "rates", index, field), did_you_mean(name, known)
                yield card.problem(at, code, f"there is no {told} now", fix, "warning")


def is_zone(name: str) -> bool:
    """Whether the IANA database has a zone of that name."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True
