"""Guarantees of CPU and memory that a queue shares with those below it, in tiny worlds, drawn: what organisations hold at rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from solver.checker.check import violations
from solver.checker.host_common import HostCommon
from solver.model.quantities import Cpu, Memory
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, QueueName
from solver.plan.plan import Evict, Yields
from solver.policy.host_share import CpuQuota, MemoryQuota
from solver.policy.policy import Policy, policy_of
from solver.quota.host_dues import HostDues
from solver.quota.host_guarantees import HostGuarantees
from solver.round.solve import solve
from tests.drawn import parted
from tests.scenarios.loader import Scenario, read_scenario
from tests.solver.laws.judge import greedy, production
from tests.solver.laws.loop import Course, course_of
from tests.solver.laws.worlds import World
from tests.solver.preemption import test_host_dues as alike
from tests.solver.preemption import test_host_sizes as sizes

FEW, WORLDS = 8, 120
"""How many are tried by `make test`, and in all."""

SCENARIOS = Path(__file__).parents[2] / "scenarios"


def shared_by(policy: Policy, *names: str) -> Policy:
    """The same policy, in which these queues share what they are guaranteed of CPU and memory, and no others."""
    queues = tuple(
        msgspec.structs.replace(
            queue,
            host_quota=tuple(msgspec.structs.replace(row, shared=queue.name in names) for row in queue.host_quota),
        )
        for queue in policy.queues
    )
    return policy_of(queues, policy.priority_classes, policy.scheduling)


def sharing(seed: int) -> World:
    """All jobs are alike; one or both of two organisations share. In half of the worlds what is guaranteed alone is taken back."""
    snapshot, policy = alike.drawn(seed)
    random = Random(f"shared/{seed}")
    own = {name: random.choice((0, 0, 0, 1)) for name in "abcd"}
    own["x"] = max(own["a"] + own["b"], random.randint(1, 5))
    own["y"] = max(own["c"] + own["d"], random.randint(0, 8 - own["x"]))
    rows = {name: (Cpu(n * alike.CORES * 1000), Memory(n * alike.CORES * alike.GIB)) for name, n in own.items()}
    queues = tuple(
        msgspec.structs.replace(queue, host_quota=(CpuQuota(rows[queue.name][0]), MemoryQuota(rows[queue.name][1])))
        for queue in policy.queues
    )
    scheduling = msgspec.structs.replace(policy.scheduling, reclaim=random.choice(("fair-share", "guaranteed")))
    policy = policy_of(queues, policy.priority_classes, scheduling)
    return World(_others_run(snapshot, random), shared_by(policy, *random.choice((("x",), ("x",), ("y",), ("x", "y")))))


def sharing_sizes(seed: int) -> World:
    """Jobs of all sizes, of which strangers hold most; x shares what its queues are mostly not guaranteed themselves."""
    snapshot, policy = sizes.drawn(seed)
    random = Random(f"shared/{seed}")
    own = {name: random.choice((0, 0, 24)) for name in ("b", "x1", "x2")}
    own["x"] = own["x1"] + own["x2"] + random.choice((24, 48, 96))
    memory = {
        name: cores * random.choice((1, 2)) * sizes.GIB if name != "x" else 192 * sizes.GIB
        for name, cores in own.items()
    }
    queues = tuple(
        msgspec.structs.replace(
            queue,
            host_quota=(CpuQuota(Cpu(own[queue.name] * 1000)), MemoryQuota(Memory(memory[queue.name]))),
        )
        for queue in policy.queues
    )
    scheduling = msgspec.structs.replace(policy.scheduling, reclaim=random.choice(("fair-share", "guaranteed")))
    policy = policy_of(queues, policy.priority_classes, scheduling)
    return World(_others_run(snapshot, random, "x1", "x2", "b"), shared_by(policy, "x"))


def _others_run(snapshot: Snapshot, random: Random, one: str = "a", two: str = "b", other: str = "c") -> Snapshot:
    """The same snapshot, in which most of what runs is of one queue, and most of what waits of two others."""

    def of(job: Job) -> Job:
        queue = job.spec.queue
        if random.random() < 0.7:
            queue = QueueName(other if job.placement else random.choice((one, two)))
        return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, queue=queue))

    return snapshot_of(snapshot.time, snapshot.nodes, [of(job) for job in snapshot.jobs])


def problems(course: Course) -> Iterator[str]:
    """What no reading of the rules allows: at rest each organisation that shares has what it is guaranteed, whoever asks for it."""
    world = course.world
    if not course.rests:
        yield "does not come to rest"
    left = [step.job for round_ in course.rounds for step in round_.evictions]
    yield from (f"{name} leaves twice" for name in sorted({name for name in left if left.count(name) > 1}))
    for round_ in course.rounds:
        yield from (f"{found}" for found in violations(round_.snapshot, round_.policy, round_.plan))
    held = Counter(str(job.spec.queue) for job in course.end.jobs if job.placement)
    wanted = Counter(str(job.spec.queue) for job in course.end.jobs)
    for parent in "xy":
        names = alike.BELOW[parent]
        has, asks = sum(held[name] for name in names), sum(wanted[name] for name in names)
        queue = world.policy.queue(parent)
        sure = min(alike.guaranteed_jobs(world.policy, parent), asks)
        if queue is not None and queue.host_quota[0].shared and has < sure:
            yield f"{parent} has {has} jobs, and shares {sure}"
    for name in "abcd":
        sure = min(alike.guaranteed_jobs(world.policy, name), wanted[name])
        if held[name] < sure:
            yield f"{name} has {held[name]} jobs, and is guaranteed {sure}"


def claimed(courses: Iterable[Course]) -> int:
    """In how many of them jobs leave for what a queue shares."""
    verdicts = ([known for held in course.rounds for known in held.plan.verdicts] for course in courses)
    return sum(any(isinstance(known, Yields) and known.shared_by for known in found) for found in verdicts)


@pytest.mark.parametrize("seeds", parted(FEW, WORLDS))
@pytest.mark.parametrize("decide", [greedy, production])
def test_each_organisation_comes_to_hold_what_it_shares(decide: object, seeds: range) -> None:
    courses = {seed: course_of(sharing(seed), decide) for seed in seeds}  # type: ignore[arg-type]
    assert {seed: found for seed, course in courses.items() if (found := [*problems(course)])} == {}
    assert claimed(courses.values()) >= len(seeds) // 20


@pytest.mark.parametrize("seeds", parted(FEW, 2 * WORLDS))
@pytest.mark.parametrize("decide", [greedy, production])
def test_no_plan_of_jobs_of_all_sizes_is_refused(decide: object, seeds: range) -> None:
    bad = {}
    for seed in seeds:
        course = course_of(sharing_sizes(seed), decide)  # type: ignore[arg-type]
        found = [str(one) for held in course.rounds for one in violations(held.snapshot, held.policy, held.plan)]
        found += [] if course.rests else ["does not come to rest"]
        if found:
            bad[seed] = found
    assert bad == {}


def test_a_fair_share_is_judged_beside_what_leaves_for_guarantees() -> None:
    """A job of x leaves for the guarantee of a sibling, so that a third one is inside the fair share of x."""
    assert [*problems(course_of(sharing(409), greedy))] == []


def test_what_is_said_of_a_queue_with_none_below_it_changes_nothing() -> None:
    for seed in range(6):
        snapshot, policy = sizes.drawn(seed)
        plan, same = (solve(snapshot, of, None) for of in (policy, shared_by(policy, "b", "x1", "x2")))
        assert msgspec.structs.replace(same, policy=plan.policy).digest == plan.digest, seed


# By hand, and the checker.


def scenario(name: str) -> Scenario:
    """One of those of tests/scenarios."""
    return read_scenario(SCENARIOS / f"host-shared-{name}.yaml")


def decided(known: Scenario, policy: Policy) -> tuple[set[str], set[str]]:
    """Which jobs leave, and the rules that the plan breaks."""
    plan = solve(known.snapshot, policy, None)
    found = {violation.rule for violation in violations(known.snapshot, policy, plan)}
    return {str(step.job) for step in plan.steps if isinstance(step, Evict)}, found


def test_a_claim_is_refused_where_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    known = scenario("guarantee-is-claimed-by-any-queue-below")
    assert decided(known, known.policy) == ({"stranger-two"}, set())
    assert decided(known, shared_by(known.policy)) == (set(), set())
    monkeypatch.setattr(HostCommon, "is_shared", False)
    assert decided(known, known.policy) == ({"stranger-two"}, {"S4"})


def test_a_claim_beyond_what_is_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = scenario("guarantee-is-not-claimed-from-siblings")
    monkeypatch.setattr(HostDues, "claims", lambda self, held: bool(self.guarantees.sharing(held)))
    assert decided(known, known.policy) == ({"stranger-one"}, {"S4", "S12"})


def test_what_a_queue_holds_of_what_is_shared_is_kept_from_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    known = scenario("guarantee-held-by-one-queue-is-safe-from-strangers")
    assert decided(known, known.policy) == ({"lender-one"}, set())
    assert decided(known, shared_by(known.policy)) == ({"a-one"}, set())
    monkeypatch.setattr(HostGuarantees, "common", property(lambda self: HostGuarantees(self.tree, {})))
    monkeypatch.setattr(HostDues, "claims", lambda *_: False)
    assert decided(known, known.policy)[1] == {"S4"}
