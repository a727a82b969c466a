"""On worlds small enough to try everything, the round must reach what is best, and must never claim more than there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from solver.capacity.free_capacity import FreeCapacity
from solver.capacity.partitioning import pool_rules
from solver.capacity.sharing import sharing_of
from solver.milp.cells import Cells
from solver.milp.certificate import better
from solver.milp.classes import classes_of
from solver.milp.conversion import point_of, starts_of
from solver.milp.formulation import Formulation
from solver.milp.highs import optimise
from solver.milp.optimiser import Effort
from solver.milp.start_decision import StartDecision, able_to_start, begin, cell_level
from solver.model.cluster import GpuType
from solver.model.quantities import Duration
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobSpec
from solver.placement.starts import layer_values
from solver.policy.policy import Policy
from solver.queueing.demand import StartCandidate, SubLayer, in_order, sub_layers_of
from solver.quota.entitlement import QuotaHeadroom, Shares
from solver.round.solve import competing, standing
from tests.drawn import counted
from tests.solver.brute_force import best_values
from tests.solver.worlds import HOUR_MS, TYPES, comparing_across, policies, snapshots, with_sets, with_units

EXAMPLES = counted(600)


@dataclass
class Tally:
    """How often the round was as good as the best answer."""

    rounds: int = 0
    best: int = 0
    best_by_program: int = 0
    grown: int = 0
    kept: int = 0
    early: int = 0
    early_starts: int = 0
    not_lent: int = 0
    limited: int = 0
    in_units: int = 0


@pytest.mark.thorough
def test_the_round_is_as_good_as_trying_everything() -> None:
    tally = compared(snapshots(nodes_max=4, jobs_max=4, held_one_in=5), EXAMPLES)
    # What is missing are rounds where CPU beside GPUs decides: rows per shape are necessary there, not sufficient.
    assert tally.best >= 0.985 * tally.rounds


@pytest.mark.long
def test_so_is_a_round_of_elastic_gangs() -> None:
    tally = compared(snapshots(nodes_max=3, jobs_max=3, elastic=True, held_one_in=8), EXAMPLES)
    assert tally.grown >= EXAMPLES // 15, "hardly any gang grew: these worlds do not test growth"
    # One CPU-tight world that hypothesis draws seven times is missed in the fit layer, and not called proven.
    assert tally.best >= 0.98 * tally.rounds


@pytest.mark.long
def test_so_is_a_round_of_gangs_that_keep_together_and_apart() -> None:
    tally = compared(snapshots(nodes_max=4, jobs_max=3, close=True, held_one_in=8), EXAMPLES)
    assert tally.kept >= EXAMPLES // 12, "hardly any gang that started asked for bundles or a spread"
    # The program knows no spreads, and bundles of two levels only in part: what it wants can't always be placed.
    assert tally.best >= 0.99 * tally.rounds


@pytest.mark.thorough
def test_so_is_a_round_of_gangs_whose_parts_keep_together() -> None:
    worlds = snapshots(nodes_max=4, jobs_max=2, elastic=True, close=True, inner=True, held_one_in=8)
    tally = compared(worlds, 3 * EXAMPLES)
    assert tally.grown >= EXAMPLES // 20, "hardly any gang grew, by steps or without"
    assert tally.kept >= EXAMPLES // 4, "hardly any gang that started asked for bundles, groups together or a spread"
    assert tally.best >= 0.99 * tally.rounds


@pytest.mark.thorough
def test_so_is_a_round_of_gangs_of_units_of_two_groups() -> None:
    worlds = snapshots(nodes_max=4, jobs_max=2, held_one_in=8, sizes=(1, 2)).flatmap(with_units)
    tally = compared(worlds, EXAMPLES)
    assert tally.in_units >= EXAMPLES // 6, "hardly any gang that started was made of units"
    assert tally.grown >= EXAMPLES // 20, "hardly any gang grew by units"
    assert tally.best >= 0.99 * tally.rounds


@pytest.mark.long
def test_so_is_a_round_of_jobs_that_wait_for_their_first_type() -> None:
    tally = compared(snapshots(nodes_max=4, jobs_max=4, held_one_in=4).map(patient), EXAMPLES)
    assert tally.early >= EXAMPLES // 8, "hardly anybody was too early for a GPU type"
    assert tally.early_starts >= EXAMPLES // 60, "hardly anybody was entitled to a type that was not open yet"
    assert tally.best >= 0.985 * tally.rounds


@pytest.mark.long
def test_so_is_a_round_where_queues_do_not_lend_all() -> None:
    worlds = snapshots(nodes_max=4, jobs_max=4, sizes=(1, 2), held_one_in=5)
    tally = compared(worlds, EXAMPLES, policies(keeping=True))
    assert tally.not_lent >= EXAMPLES // 15, "hardly anybody would have taken what is kept back"
    assert tally.best >= 0.985 * tally.rounds


@pytest.mark.thorough
def test_so_is_a_round_of_gangs_that_may_be_on_some_nodes_only() -> None:
    worlds = snapshots(nodes_max=4, jobs_max=4, held_one_in=8).flatmap(with_sets)
    tally = compared(worlds, EXAMPLES)
    assert tally.limited >= EXAMPLES // 6, "hardly any gang that started was limited to some of the nodes of its types"
    assert tally.best >= 0.985 * tally.rounds


@pytest.mark.thorough
def test_so_is_a_round_where_values_compare_across_queues() -> None:
    worlds = snapshots(nodes_max=4, jobs_max=4, sizes=(1, 2), held_one_in=5)
    tally = compared(worlds, EXAMPLES // 2, policies().map(comparing_across))
    assert tally.best >= 0.985 * tally.rounds


def not_lent(answer: StartDecision, candidates: Sequence[StartCandidate], shares: Shares) -> bool:
    """Whether somebody waits whom no ceiling holds back, but what others keep back."""
    headroom, started = QuotaHeadroom(shares), {start.candidate.job.name for start in answer.starts}
    for start in answer.starts:
        headroom.take(start.queue, start.charge)
    return any(
        not headroom.blocking(waiting.job.spec.queue, option.charge)
        and headroom.weights.refused(waiting.job.spec.queue, option.charge)
        for waiting in candidates
        if waiting.job.name not in started
        for option in waiting.options
    )


def patient(snapshot: Snapshot) -> Snapshot:
    """The world, in which every waiting job wants one type rather than the other, and has waited too shortly for that."""

    def changed(known: Job, types: tuple[GpuType, ...]) -> Job:
        groups = tuple(
            msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, gpu_types=types))
            for group in known.spec.task_groups
        )
        spec = msgspec.structs.replace(known.spec, task_groups=groups, fallback_after=Duration(9 * HOUR_MS))
        return msgspec.structs.replace(known, spec=spec)

    jobs = (
        changed(known, TYPES[:: (1, -1)[place % 2]]) if known.phase == "pending" else known
        for place, known in enumerate(snapshot.jobs)
    )
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


def compared(worlds: SearchStrategy[Snapshot], examples: int, known: SearchStrategy[Policy] | None = None) -> Tally:
    """Hold a round in each of so many worlds and try everything; fails where a round is above the best or proves less."""
    tally = Tally()

    @seed(2026)
    @settings(max_examples=examples, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(worlds, policies() if known is None else known)
    def compare(snapshot: Snapshot, policy: Policy) -> None:
        answer, best, reached = both(snapshot, policy)
        assert not better(reached, best), "the answer is better than possible: it breaks a rule"
        proven = all(layer.status == "proven" for layer in answer.certificate.layers)
        assert not (proven and better(best, reached)), "the certificate proves a value that is not the best"
        tally.rounds += 1
        tally.best += not better(best, reached)
        tally.grown += any(start.growth for start in answer.starts)
        by_program = without_greedy(snapshot, policy)
        assert not better(by_program, best), "the program's answer is better than possible: it lacks a row"
        tally.best_by_program += not better(best, by_program)
        tally.early += any(
            option.inside_only for waiting in candidates_of(snapshot, policy)[0] for option in waiting.options
        )
        tally.early_starts += any(start.option.inside_only for start in answer.starts)
        tally.not_lent += not_lent(answer, *candidates_of(snapshot, policy))
        tally.limited += any(group.nodes for start in answer.starts for group in start.candidate.job.spec.task_groups)
        tally.in_units += any(
            u.units > 1 for start in answer.starts for u in start.candidate.job.spec.topology.together
        )
        tally.kept += any(_keeps(start.candidate.job.spec) for start in answer.starts)

    compare()
    assert tally.rounds == examples
    # Greedy is often as good; so the program is looked at alone as well.
    assert tally.best_by_program >= 0.97 * examples
    return tally


def _keeps(spec: JobSpec) -> bool:
    groups = [group.topology for group in spec.task_groups]
    return spec.tasks > 1 and any(
        (
            spec.topology.group,
            spec.topology.spread,
            spec.topology.together,
            *(known.keeps_near_or_apart for known in groups),
        )
    )


def both(snapshot: Snapshot, policy: Policy) -> tuple[StartDecision, tuple[float, ...], tuple[float, ...]]:
    """The round's answer, the best layer values, and the answer's own."""
    candidates, room, shares, sub_layers = world_of(snapshot, policy)
    answer = begin(candidates, room, shares, policy.scheduling.solver, optimise).answer()
    return answer, best_values(candidates, room, shares, sub_layers), layer_values(answer.starts, sub_layers, shares)


def world_of(
    snapshot: Snapshot, policy: Policy
) -> tuple[tuple[StartCandidate, ...], FreeCapacity, Shares, tuple[SubLayer, ...]]:
    """Who competes for what, under which shares, and the sub-layers of those who are able to start."""
    candidates, shares = candidates_of(snapshot, policy)
    room = FreeCapacity.of(
        snapshot, sharing_of(policy, shares.tree, snapshot.nodes).domain, pool_rules(policy, snapshot)
    )
    return candidates, room, shares, sub_layers_of(able_to_start(candidates, room, shares))


def without_greedy(snapshot: Snapshot, policy: Policy) -> tuple[float, ...]:
    """The layer values of what the program wants, made concrete, though greedy may be better."""
    candidates, shares = candidates_of(snapshot, policy)
    room = FreeCapacity.of(snapshot, sharing_of(policy, shares.tree, snapshot.nodes).domain)
    able = able_to_start(candidates, room, shares)
    classes, sub_layers = classes_of(able), sub_layers_of(able)
    formulation = Formulation(classes, Cells(room, cell_level(classes)), shares, sub_layers)
    formulation.state()
    program = formulation.builder.build()
    solution = optimise(program, point_of((), formulation, program, room), Effort(0.0, 10.0, 0))
    assert solution is not None
    return layer_values(starts_of(solution.values, formulation, room, able, shares), sub_layers, shares)


def candidates_of(snapshot: Snapshot, policy: Policy) -> tuple[tuple[StartCandidate, ...], Shares]:
    """The admissible pending jobs of a world in their order, and the shares they compete under."""
    shares, admissions = standing(snapshot, policy)
    return in_order(competing(snapshot, admissions), policy, shares, snapshot.time), shares
