"""Fair shares in tables that can be checked by hand, and what holds for every division."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.milp.highs import optimise
from solver.model.cluster import GpuType
from solver.model.quantities import MILLI_PER_GPU, Instant, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import QueueName
from solver.policy.policy import Queue, policy_of
from solver.policy.tree import QuotaLine
from solver.quota.fairshare import Claimant, divide
from solver.round.solve import solve, standing
from tests.drawn import worlds
from tests.solver.aftermath import applied
from tests.solver.worlds import job, node, quota_of

H = GpuType("H100")
A, B, C = QueueName("a"), QueueName("b"), QueueName("c")


@pytest.mark.parametrize(
    ("why", "gpus", "claimants", "expected"),
    [
        ("equal weights, equal shares", 16, {A: (0, 99, 1), B: (0, 99, 1)}, {A: 8, B: 8}),
        ("by weight", 16, {A: (0, 99, 3), B: (0, 99, 1)}, {A: 12, B: 4}),
        ("guaranteed first", 16, {A: (10, 99, 1), B: (0, 99, 1)}, {A: 13, B: 3}),
        ("a guarantee counts as far as there is demand", 16, {A: (10, 2, 1), B: (0, 99, 1)}, {A: 2, B: 14}),
        ("what one can't use goes to the others", 16, {A: (0, 3, 1), B: (0, 99, 1), C: (0, 99, 1)}, {A: 3, B: 7, C: 6}),
        ("nobody gets more than it wants", 16, {A: (0, 3, 1), B: (0, 4, 1)}, {A: 3, B: 4}),
        ("guarantees above what there is stay", 4, {A: (4, 9, 1), B: (4, 9, 1)}, {A: 4, B: 4}),
    ],
)
def test_divide(
    why: str, gpus: int, claimants: dict[QueueName, tuple[int, int, int]], expected: dict[QueueName, int]
) -> None:
    assert divided(gpus, {name: Claimant(*row) for name, row in claimants.items()}) == expected, why


def divided(gpus: int, claimants: dict[QueueName, Claimant]) -> dict[QueueName, int]:
    """`divide` in whole GPUs."""
    counted = {
        name: Claimant(known.guaranteed * MILLI_PER_GPU, known.demand * MILLI_PER_GPU, known.weight)
        for name, known in claimants.items()
    }
    shares = divide(gpus * MILLI_PER_GPU, counted)
    assert not any(share % MILLI_PER_GPU for share in shares.values()), "fair shares are whole GPUs"
    return {name: share // MILLI_PER_GPU for name, share in shares.items()}


@given(
    st.integers(0, 500),
    st.dictionaries(
        st.sampled_from([QueueName(f"q{n}") for n in range(8)]),
        st.builds(Claimant, st.just(0), st.integers(0, 200), st.integers(1, 9)),
        min_size=1,
    ),
)
def test_a_division_wastes_nothing_and_favours_nobody(gpus: int, claimants: dict[QueueName, Claimant]) -> None:
    shares = divided(gpus, claimants)
    assert all(shares[name] <= known.demand for name, known in claimants.items())
    assert sum(shares.values()) == min(gpus, sum(known.demand for known in claimants.values()))
    for hungry, known in claimants.items():
        if shares[hungry] < known.demand:
            # Rounding to whole GPUs costs less than one GPU in each round of filling, and there are no more rounds than siblings.
            poorest = (shares[hungry] + len(claimants)) / known.weight
            assert all(shares[other] / claimants[other].weight <= poorest + len(claimants) for other in claimants)


@worlds(60)
@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=30),
    st.tuples(*[st.tuples(st.integers(0, 8), st.integers(1, 4))] * 3),
)
def test_where_every_job_is_one_gpu_everybody_gets_its_fair_share(
    nodes: int, asked: list[tuple[str, int]], rows: tuple[tuple[int, int], ...]
) -> None:
    policy = policy_of(
        tuple(
            Queue(QueueName(name), None, (quota_of(H, guaranteed),), weight)
            for name, (guaranteed, weight) in zip("abc", rows, strict=True)
        )
    )
    pending = [job(f"j{n}", queue, 1, 1, submitted=at) for n, (queue, at) in enumerate(asked)]
    world = snapshot_of(Instant(1000), [node(f"n{n}", 8) for n in range(nodes)], pending)
    shares, _ = standing(world, policy)
    after, _ = standing(applied(world, solve(world, policy, optimise)), policy)
    if sum(shares.fair.values()) <= MilliGpu.gpus(8 * nodes):
        for queue in policy.queues:
            line = QuotaLine(queue.name, H)
            assert after.used.get(line, 0) >= shares.fair[line]


def test_what_is_not_lent_is_divided_to_nobody_else() -> None:
    """The owner's own jobs have it, beside a part of the rest; idle, it is nobody's."""
    queues = (
        Queue(A, quota=(quota_of("H100", 8, lendable=0),)),
        *(Queue(name, quota=(quota_of("H100", 0),)) for name in (B, C)),
    )
    nodes = [node(f"n{number}", 8) for number in range(4)]
    waiting = [job(f"{name}-{number}", name, 1, 1) for name in (B, C) for number in range(30)]
    own = [job(f"a-{number}", A, 1, 1) for number in range(30)]
    for jobs, expected in ((waiting, [0, 12, 12]), ([*waiting, *own[:6]], [6, 12, 12]), ([*waiting, *own], [16, 8, 8])):
        shares, _ = standing(snapshot_of(Instant(0), nodes, jobs), policy_of(queues))
        assert [shares.fair[QuotaLine(name, H)] // MILLI_PER_GPU for name in (A, B, C)] == expected


def test_inside_an_organisation_its_other_teams_share_what_a_team_lends() -> None:
    """And what the organisation keeps back beside that is theirs alone."""
    org = QueueName("org")
    queues = (
        Queue(org, quota=(quota_of("H100", 24, lendable=0),)),
        Queue(A, org, (quota_of("H100", 16, lendable=8),)),
        Queue(B, org, (quota_of("H100", 8),)),
        Queue(C, quota=(quota_of("H100", 0),)),
    )
    nodes = [node(f"n{number}", 8) for number in range(4)]
    jobs = [job(f"{name}-{number}", name, 1, 1) for name in (B, C) for number in range(30)]
    shares, _ = standing(snapshot_of(Instant(0), nodes, jobs), policy_of(queues))
    found = {name: shares.fair[QuotaLine(name, H)] // MILLI_PER_GPU for name in (org, A, B, C)}
    assert found == {org: 20, A: 0, B: 20, C: 4}
