"""Time limits of gangs of pods: fixed when they are bound, counted from their oldest pod, told beforehand to those that save."""

from __future__ import annotations

from typing import Any

import msgspec

from reconciler.kubernetes.binder.eviction_steps import TimeUp, eviction_record_of
from reconciler.kubernetes.binder.records import written
from reconciler.kubernetes.control.limits import times_up, with_idle_limits
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.control.starts import bindings_of
from reconciler.kubernetes.objects import names
from solver.checker.check import violations
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import QueueName
from solver.plan.plan import Evict
from solver.policy.policy import PriorityClass, Queue, policy_of
from solver.round.solve import solve
from tests.reconciler.kubernetes.control.test_sight import GANG, NOW, a_worker, sight_of, snapshot_of_sight
from tests.reconciler.kubernetes.samples import Sent, node

HOUR = Duration.parse("1h")
OVER = Instant.parse("2026-11-20T09:30:00Z")
POLICY = policy_of(
    (Queue(QueueName("q")),),
    (PriorityClass("short", default_time_limit=HOUR), PriorityClass("notebooks", idle_limit=HOUR)),
)
SHORT = {names.PRIORITY_CLASS: "short"}


def runs(index: int, since: str = "2026-11-20T08:30:00Z", **notes: str) -> Sent:
    sent = a_worker(index, "n1", annotations={names.ATTEMPT: "1", names.LIMIT: "1h", **notes})
    return {**sent, "status": {"phase": "Running", "startTime": since}}


def sight(*pods: Sent) -> Sight:
    return sight_of([node("n1", 8)], pods)


def up(world: Sight, at: Instant = OVER) -> list[TimeUp]:
    return list(times_up(world, POLICY, at))


def test_the_limit_of_its_class_is_written_with_the_bindings() -> None:
    world = sight(*(a_worker(index, annotations=SHORT) for index in range(3)))
    snapshot = snapshot_of_sight(world, policy=POLICY)
    plan = solve(snapshot, POLICY, None)
    assert violations(snapshot, POLICY, plan) == ()
    assert [binding.limit for binding in bindings_of(plan.steps, world.gangs)] == [HOUR]


def test_its_own_limit_goes_before_that_of_its_class() -> None:
    world = sight(*(a_worker(index, annotations={**SHORT, names.TIME_LIMIT: "3h"}) for index in range(3)))
    plan = solve(snapshot_of_sight(world, policy=POLICY), POLICY, None)
    assert [binding.limit for binding in bindings_of(plan.steps, world.gangs)] == [Duration.parse("3h")]


def test_what_is_bound_keeps_its_limit_whatever_the_policy_says_now() -> None:
    world = sight(*(runs(index, **{names.LIMIT: "2h"}) for index in range(3)))
    (claim,) = world.claims
    assert claim.limit_reached_at == Instant.parse("2026-11-20T10:30:00Z")
    unlimited = [runs(index, **SHORT) for index in range(3)]
    for sent in unlimited:
        del sent["metadata"]["annotations"][names.LIMIT]
    assert sight(*unlimited).claims[0].limit_reached_at is None


def test_its_time_is_over_so_long_after_its_oldest_pod_was_started() -> None:
    world = sight(runs(0), runs(1), runs(2, "2026-11-20T08:59:00Z"))
    assert up(world, Instant(OVER - 1)) == []
    assert up(world) == [TimeUp(GANG, 1, HOUR, OVER)]


def test_who_saves_its_work_is_told_as_long_before_as_it_needs() -> None:
    world = sight(*(runs(index, **{names.CHECKPOINT_GRACE: "5m"}) for index in range(3)))
    told_at = Instant(OVER - 300_000)
    assert up(world, Instant(told_at - 1)) == []
    assert up(world, told_at) == [TimeUp(GANG, 1, HOUR, OVER)]


def test_a_limit_that_passed_while_nobody_led_is_over_now() -> None:
    assert up(sight(*(runs(index) for index in range(3))), Instant(OVER + 60_000))[0].over_at == OVER + 60_000


def test_nobody_is_told_twice_and_who_leaves_already_is_not_told() -> None:
    def told(step: Any) -> list[TimeUp]:
        pods = [runs(index) for index in range(3)]
        bearer = sight(*pods).pods["vision", "w0"]
        record = msgspec.structs.replace(eviction_record_of(step, [bearer], NOW), uid=bearer.metadata.uid)
        pods[0]["metadata"]["annotations"][names.EVICT] = written(record)
        return up(sight(*pods))

    assert told(TimeUp(GANG, 1, HOUR, OVER)) == []
    assert told(Evict(GANG, 1, "reclaim", HOUR, MilliGpu.gpus(6), 0.0)) == []
    assert told(TimeUp(GANG, 2, HOUR, OVER)) != []  # that was of another attempt


def test_which_classes_ask_for_what_nobody_sees() -> None:
    assert list(with_idle_limits(POLICY)) == ["notebooks"]
