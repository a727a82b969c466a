"""In exact mode every layer of a small round has the value that trying everything finds, and the certificate proves it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from solver.certify import same
from solver.decide import Answer, decide
from solver.program.highs import optimise
from solver.rules.policy import Policy, SolverLimits
from solver.starts import layer_names, layer_values
from solver.world.snapshot import Snapshot
from tests.solver.brute_force import best_values
from tests.solver.test_against_brute_force import patient, world_of
from tests.solver.worlds import policies, snapshots

WORLDS: dict[str, tuple[SearchStrategy[Snapshot], int]] = {
    "plain": (snapshots(nodes_max=4, jobs_max=4, held_one_in=5), 900),
    "elastic": (snapshots(nodes_max=3, jobs_max=3, elastic=True, held_one_in=8), 500),
    "close": (snapshots(nodes_max=4, jobs_max=3, close=True, held_one_in=8), 500),
    "elastic and close": (snapshots(nodes_max=3, jobs_max=3, elastic=True, close=True, held_one_in=8), 300),
    "patient": (snapshots(nodes_max=4, jobs_max=3, held_one_in=4).map(patient), 300),
}
"""Random worlds by what they are about, and how many of each: 2,500 together."""


@dataclass
class Tally:
    """What was found in so many rounds. `cut`: rounds whose program wanted what finds no place."""

    rounds: int = 0
    cut: int = 0
    by_program: int = 0
    mismatches: list[str] = field(default_factory=list)


@pytest.mark.parametrize("about", WORLDS)
def test_every_layer_has_the_value_that_trying_everything_finds(about: str) -> None:
    worlds, examples = WORLDS[about]
    tally = compared(worlds, examples)
    assert tally.rounds == examples
    assert tally.by_program >= examples // 100, "hardly any round needed the program"
    assert not tally.mismatches, "\n".join(tally.mismatches)


def compared(worlds: SearchStrategy[Snapshot], examples: int, seed_of: int = 2027) -> Tally:
    """Decide so many rounds exactly and try everything."""
    tally = Tally()

    @seed(seed_of)
    @settings(max_examples=examples, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(worlds, policies())
    def compare(snapshot: Snapshot, policy: Policy) -> None:
        answer, mismatches = judged(snapshot, exactly(policy))
        tally.rounds += 1
        tally.cut += answer.certificate.cuts > 0
        tally.by_program += answer.certificate.stage == "mip"
        tally.mismatches += [f"round {tally.rounds}: {mismatch}" for mismatch in mismatches]

    compare()
    return tally


def judged(snapshot: Snapshot, policy: Policy) -> tuple[Answer, list[str]]:
    """The round's answer, and each layer in which it is not the best, or not proven to be."""
    candidates, room, shares, sub_layers = world_of(snapshot, policy)
    answer = decide(candidates, room, shares, policy.scheduling.solver, optimise)
    reached, best = layer_values(answer.starts, sub_layers, shares), best_values(candidates, room, shares, sub_layers)
    return answer, [
        f"{name}: reached {mine}, best {theirs}, {layer.status}"
        for name, mine, theirs, layer in zip(
            layer_names(sub_layers), reached, best, answer.certificate.layers, strict=True
        )
        if not same(mine, theirs) or layer.status != "proven"
    ]


def exactly(policy: Policy) -> Policy:
    """The policy, in exact mode."""
    scheduling = msgspec.structs.replace(policy.scheduling, solver=SolverLimits("exact"))
    return msgspec.structs.replace(policy, scheduling=scheduling)
