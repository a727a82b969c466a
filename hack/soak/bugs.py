"""Bugs seeded on purpose, each of another kind that a soak is to notice: two owners, books that differ, memory that grows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from hack.crash.bugs import devices_are_released_before_the_stop_is_confirmed
from hack.soak.soak import Sample, Soak, growth
from reconciler.control import ledger_site
from reconciler.control.control import ControlPlane
from reconciler.control.passes import Pass
from reconciler.protocols.ledger import Claim
from reconciler.store.ledger import SqlLedger

Patches = Iterable[Any]
HOURS, SAMPLES_EVERY = 90, 4
MEMORY_MAX = 0.03


def a_placement_is_kept_late() -> Patches:
    """What is on record begins a second after devices were given."""
    sound = SqlLedger.claim_all

    def claim_all(ledger: SqlLedger, epoch: Any, wanted: Any) -> Any:
        later = [(msgspec.structs.replace(claim, since=claim.since.after(1_000)), intent) for claim, intent in wanted]
        return sound(ledger, epoch, later)

    yield mock.patch.object(SqlLedger, "claim_all", claim_all)


def every_round_is_remembered() -> Patches:
    """A list that only grows."""
    kept, sound = list[tuple[Pass, list[Claim]]](), ledger_site.one_pass

    def one_pass(plane: ControlPlane) -> Pass:
        done = sound(plane)
        kept.append((done, [msgspec.structs.replace(claim) for claim in plane.ledger.claims()]))
        return done

    yield mock.patch.object(ledger_site, "one_pass", one_pass)


BUGS: tuple[Callable[[], Patches], ...] = (
    devices_are_released_before_the_stop_is_confirmed,
    a_placement_is_kept_late,
    every_round_is_remembered,
)


def caught_by(bug: Callable[[], Patches] | None, hours: int = HOURS, seed: int = 1) -> str:
    """What a soak says of it; "": nothing. `bug` None: of what is sound."""
    with ExitStack() as seeded, tempfile.TemporaryDirectory(prefix="quorate-soak-") as folder:
        for patch in bug() if bug else ():
            seeded.enter_context(patch)
        came = Soak(seed, Path(folder) / "quorate.db").run(hours, SAMPLES_EVERY)
    if came.problems:
        return came.problems[0]
    grown = growth(came.samples, _objects)
    return f"memory grows by {grown:.1%}" if grown > MEMORY_MAX else ""


def _objects(sample: Sample) -> float:
    return sample.objects
