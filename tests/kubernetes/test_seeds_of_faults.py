"""Seeds of faults between the scheduler and a real API server, and bugs seeded on purpose, which they have to find."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import found, place
from hack.kubernetes.faults.bugs import BUGS
from hack.kubernetes.faults.profile import PROFILES
from hack.kubernetes.faults.seed import Outcome, arena, run_seed
from hack.kubernetes.faults.trials import TRIALS
from tests.kubernetes.sessions import REAL

pytestmark = [*REAL, pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")]
SEEDS = range(10)
TRIES_MAX = 5
"""A bug shows when two things happen at about the same time."""


@pytest.fixture
def its_own(tmp_path: Path) -> Iterator[Cluster]:
    """Its audit log has nobody else's deeds."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with running(found(place()), folder) as cluster:
        yield cluster


def test_faults_break_nothing(its_own: Cluster, tmp_path: Path) -> None:
    async def story() -> list[Outcome]:
        async with arena(its_own, tmp_path) as there:
            return [await run_seed(there, seed) for seed in SEEDS]

    outcomes = asyncio.run(story())
    assert not [(one.seed, one.violations) for one in outcomes if one.violations]
    assert {one.profile for one in outcomes} == {profile.name for profile in PROFILES}
    assert sum(sum(one.befell.values()) for one in outcomes) >= 10 * len(outcomes), "too few faults to show anything"
    assert sum(one.kills for one in outcomes) >= len(outcomes)
    assert sum(one.bindings for one in outcomes) >= 5 * len(outcomes)


def test_every_bug_has_its_trial() -> None:
    assert set(TRIALS) == set(BUGS)


@pytest.mark.long
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found_and_a_sound_scheduler_is_not_blamed(its_own: Cluster, tmp_path: Path, bug: str) -> None:
    trial, numbers = TRIALS[bug], itertools.count(10_000)

    async def story() -> None:
        async with arena(its_own, tmp_path, fenced=trial.fenced) as there:

            async def tried(bug: str) -> set[str]:
                seed = next(numbers)
                outcome = await run_seed(there, seed, bug, trial.profile, trial.script(seed))
                return {kind for kind, _ in outcome.violations}

            assert not await tried("")
            for _ in range(TRIES_MAX):
                if trial.kind in await tried(bug):
                    return
            pytest.fail(f"{bug} has shown in none of {TRIES_MAX} tries")

    asyncio.run(story())
