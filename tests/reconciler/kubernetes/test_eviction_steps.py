"""What follows for a gang that is to leave, from what is written and what is there: nothing of it goes before all of it may."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.binder.budgets import by_namespace, forbidden, protected_gangs
from reconciler.kubernetes.binder.eviction_steps import (
    BeginEviction,
    Call,
    CancelEviction,
    EvictPods,
    GangEviction,
    Move,
    TellPods,
    Wait,
    leavings,
    next_moves,
)
from reconciler.kubernetes.binder.records import EvictionRecord
from reconciler.kubernetes.objects.disruption import Budget
from reconciler.kubernetes.objects.saves import ExecHook
from reconciler.kubernetes.objects.wire import Pod, read
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from tests.reconciler.kubernetes.samples import Sent, cluster, node
from tests.reconciler.kubernetes.test_intents import RUNS, WAITS, found, gang, running, with_record

ASKED, DEADLINE = Instant(10_500), Instant(70_000)
STOP = Intent("stop", RUNS, 1, ASKED, DEADLINE, beneficiary=WAITS, purpose="evict", stage="saves")
ENDS = msgspec.structs.replace(STOP, stage="ends", staged_at=Instant(60_000))
SAVES = {"quorate.dev/checkpoint-grace": "1m"}
READY = [{"type": "Ready", "status": "True"}]


def pods_of(
    many: int, told: int, intent: Intent = STOP, count: int = 0, notes: Mapping[str, str] = MappingProxyType({})
) -> list[Sent]:
    """A gang that runs, of which so many pods have been told; the first remembers how far it has come."""
    pods = running("runs", *(f"n1/{number}" for number in range(many)))
    for number, sent in enumerate(pods):
        sent["metadata"]["annotations"] |= dict(notes)
        sent["status"]["conditions"] = READY
        if number < told:
            with_record(sent, EvictionRecord("", intent if not number else STOP, count=count if not number else 0))
    return pods


def ending(sent: Sent) -> Sent:
    sent["metadata"]["deletionTimestamp"] = "2026-11-20T09:00:00Z"
    return sent


def saved(sent: Sent, time: str) -> Sent:
    sent["metadata"]["annotations"]["quorate.dev/checkpointed"] = time
    return sent


def facts(pods: list[Sent], *budgets: Sent, waits: bool = True) -> GangEviction:
    sent = pods + (gang("waits", 1) if waits else [])
    by_key = {known.key: known for known in (read(one, Pod) for one in sent)}
    known = by_namespace(read(one, Budget) for one in budgets)
    (found,) = leavings(cluster([node("n1")], sent), by_key, known)
    return found


def budget(allowed: int, name: str = "b", **said: Any) -> Sent:
    return {
        "metadata": {
            "name": name,
            "namespace": said.get("namespace", "vision"),
            "generation": said.get("generation", 1),
        },
        "spec": {"selector": said.get("selector", {}), **said.get("spec", {})},
        "status": {"disruptionsAllowed": allowed, "observedGeneration": 1, **said.get("status", {})},
    }


def told(move: Move) -> list[str]:
    match move:
        case TellPods(pods) | CancelEviction(pods):
            return [pod.metadata.name for pod in pods]
        case EvictPods(pods, bearer):
            return [pod.metadata.name for pod, _ in (*pods, *([bearer] if bearer else []))]
        case _:
            return []


NOW = Instant(20_000)


def only(gang: GangEviction, now: Instant = NOW) -> Move:
    (move,) = next_moves(gang, now)
    return move


def test_where_somebody_can_save_all_are_told_first() -> None:
    move = only(facts(pods_of(3, 1, notes=SAVES)))
    assert isinstance(move, TellPods)
    assert told(move) == ["runs-1", "runs-2"]
    assert isinstance(only(facts(pods_of(3, 1))), BeginEviction)


def test_who_saves_nothing_ends_at_once_the_bearer_last() -> None:
    move = only(facts(pods_of(3, 3)))
    assert isinstance(move, BeginEviction)
    assert move.bearer.metadata.name == "runs-0"
    evict = only(facts(pods_of(3, 3, ENDS, 3)))
    assert isinstance(evict, EvictPods)
    assert told(evict) == ["runs-1", "runs-2", "runs-0"]
    assert [int(grace) for _, grace in evict.pods] == [30_000, 30_000]


def test_who_saves_is_waited_for_until_it_has_or_the_deadline() -> None:
    pods = pods_of(2, 2, notes=SAVES)
    assert only(facts(pods)) == Wait("2 pods may save their work until 1970-01-01T00:01:10Z")
    saved(pods[0], "1970-01-01T00:00:10Z")  # the second in which it was asked
    assert only(facts(pods)) == Wait("1 pod may save their work until 1970-01-01T00:01:10Z")
    saved(pods[1], "1970-01-01T00:00:09.999Z")
    assert isinstance(only(facts(pods)), Wait)
    late = only(facts(pods), DEADLINE)
    assert isinstance(late, BeginEviction)
    assert late.why == "has not saved its work by 1970-01-01T00:01:10Z"
    saved(pods[1], "1970-01-01T00:00:11Z")
    assert isinstance(only(facts(pods)), BeginEviction)


def test_hooks_are_called_of_those_that_have_not_saved_yet() -> None:
    pods = pods_of(3, 3, notes={"quorate.dev/checkpoint-hook": "exec:save"})
    saved(pods[0], "1970-01-01T00:00:12Z")
    pods[2]["status"]["phase"] = "Pending"  # it has nothing to save yet
    *calls, wait = next_moves(facts(pods), Instant(20_000))
    assert [(call.pod.metadata.name, call.hook) for call in calls if isinstance(call, Call)] == [
        ("runs-1", ExecHook(("save",)))
    ]
    assert isinstance(wait, Wait)


@pytest.mark.parametrize("purpose", ["end", "stuck"])
def test_what_does_not_come_back_need_not_save(purpose: Any) -> None:
    intent = msgspec.structs.replace(STOP, purpose=purpose)
    pods = pods_of(1, 1, notes=SAVES)
    with_record(pods[0], EvictionRecord("", intent))
    assert isinstance(only(facts(pods)), BeginEviction)


def test_it_stays_if_nobody_waits_for_it_any_more_but_not_once_it_ends() -> None:
    move = only(facts(pods_of(2, 2, notes=SAVES), waits=False))
    assert isinstance(move, CancelEviction)
    assert (told(move), move.in_vain) == (["runs-1", "runs-0"], False)
    assert isinstance(only(facts(pods_of(2, 2, ENDS, 2, notes=SAVES), waits=False)), EvictPods)


@pytest.mark.parametrize("intent", [STOP, ENDS])
def test_nothing_goes_that_budgets_forbid_and_at_the_deadline_it_stays(intent: Intent) -> None:
    held = facts(pods_of(2, 2, intent, 2), budget(1))
    why = "PodDisruptionBudget b allows 1 eviction now, and it takes 2"
    assert only(held) == Wait(f"until 1970-01-01T00:01:10Z: {why}")
    move = only(held, DEADLINE)
    assert isinstance(move, CancelEviction)
    assert (told(move), move.why, move.in_vain) == (["runs-1", "runs-0"], why, True)


def test_once_it_has_begun_it_goes_on_whatever_budgets_say() -> None:
    pods = pods_of(3, 3, ENDS, 3)
    for begun in ([*pods[:2]], [pods[0], pods[1], ending(pods[2])]):
        move = only(facts(begun, budget(0)), Instant(90_000))
        assert isinstance(move, EvictPods)
        assert told(move) == ["runs-1", "runs-0"]
    assert only(facts([ending(sent) for sent in pods])) == Wait("all its pods were asked to end")


def test_once_it_has_begun_all_that_are_left_remember_it() -> None:
    move = only(facts(pods_of(3, 1, ENDS, 4)))
    assert isinstance(move, TellPods)
    assert told(move) == ["runs-1", "runs-2"]


def test_where_who_remembered_it_is_gone_another_does() -> None:
    found = facts(pods_of(3, 3, ENDS, 3)[1:])
    assert found.intent.stage == "saves"
    assert isinstance(only(found), BeginEviction)


def test_pods_have_the_time_they_ask_for_as_far_as_there_is_some() -> None:
    pods = pods_of(2, 2, ENDS, 2)
    pods[0]["spec"]["terminationGracePeriodSeconds"] = 600
    pods[1]["spec"]["terminationGracePeriodSeconds"] = 5
    early, late = only(facts(pods), Instant(20_000)), only(facts(pods), Instant(200_000))
    assert isinstance(early, EvictPods)
    assert isinstance(late, EvictPods)
    assert [int(grace) for _, grace in (*early.pods, *([early.bearer] if early.bearer else []))] == [5_000, 50_000]
    assert [int(grace) for _, grace in (*late.pods, *([late.bearer] if late.bearer else []))] == [5_000, 30_000]


@pytest.mark.parametrize(
    ("budgets", "why"),
    [
        ([], ""),
        ([budget(2)], ""),
        ([budget(1)], "PodDisruptionBudget b allows 1 eviction now, and it takes 2"),
        ([budget(-1)], "PodDisruptionBudget b allows 0 evictions now, and it takes 2"),
        ([budget(0, namespace="other")], ""),
        ([budget(0, selector=None)], ""),
        ([budget(0, selector={"matchLabels": {"app": "x"}})], ""),
        (
            [budget(5, generation=2)],
            "PodDisruptionBudget b was changed, and its controller has not said yet what it allows",
        ),
        (
            [budget(5), budget(5, "c")],
            "pod runs-0 is in the PodDisruptionBudgets b and c, and in more than one none is evicted",
        ),
    ],
)
def test_budgets_are_counted_for_all_pods_together(budgets: list[Sent], why: str) -> None:
    pods = [read(sent, Pod) for sent in pods_of(2, 0)]
    assert forbidden(pods, by_namespace(read(sent, Budget) for sent in budgets)) == why


@pytest.mark.parametrize(
    ("said", "free"),
    [
        ({}, False),
        ({"status": {"currentHealthy": 1, "desiredHealthy": 1}}, True),
        ({"status": {"currentHealthy": 0, "desiredHealthy": 1}}, False),
        ({"status": {"currentHealthy": 0, "desiredHealthy": 0}}, False),
        ({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}, True),
    ],
)
def test_pods_that_are_not_ready_count_as_the_server_counts_them(said: dict[str, Any], free: bool) -> None:
    pods = pods_of(1, 0)
    pods[0]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    known = by_namespace([read(budget(0, **said), Budget)])
    assert (forbidden([read(pods[0], Pod)], known) == "") == free


@pytest.mark.parametrize("phase", ["Pending", "Failed", "Succeeded"])
def test_pods_that_do_not_run_are_not_counted(phase: str) -> None:
    pods = pods_of(1, 0)
    pods[0]["status"]["phase"] = phase
    known = by_namespace([read(budget(0), Budget)])
    assert forbidden([read(pods[0], Pod)], known) == ""


def test_gangs_that_budgets_forbid_to_evict_are_protected() -> None:
    sent = pods_of(2, 0) + running("free", "n1/4") + gang("waits", 1)
    sent[2]["metadata"]["labels"]["app"] = "free"
    world, by_key = cluster([node("n1")], sent), {one.key: one for one in (read(each, Pod) for each in sent)}
    only_runs = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
    protected = protected_gangs(world, by_key, by_namespace([read(budget(1, selector=only_runs), Budget)]))
    assert protected == {RUNS: "PodDisruptionBudget vision/b"}
    assert protected_gangs(world, by_key, {}) == {}


@given(
    st.integers(1, 4), st.integers(0, 4), st.sampled_from([STOP, ENDS]), st.integers(0, 4), st.integers(0, 100_000),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_nobody_is_evicted_before_all_may_be_and_somebody_always_remembers_it(
    many: int, told_pods: int, intent: Intent, gone: int, now: int, saves: bool, blocked: bool, waits: bool
) -> None:
    pods = pods_of(many, max(1, told_pods), intent, many, SAVES if saves else {})
    left = [*pods[:1], *pods[1 + gone :]]  # the bearer goes last
    found = facts(left, *([budget(0)] if blocked else []), waits=waits)
    *calls, move = next_moves(found, Instant(now))
    assert all(isinstance(call, Call) for call in calls)
    if isinstance(move, EvictPods):
        assert intent is ENDS
        assert not blocked or len(left) < many
        assert move.bearer is not None
        assert move.bearer[0].metadata.name == "runs-0"
    if isinstance(move, BeginEviction):
        assert not blocked
        assert not saves or now >= DEADLINE
    if isinstance(move, CancelEviction):
        assert len(left) == many or intent is STOP


LIMIT = Duration(60_000)
OVER = msgspec.structs.replace(STOP, beneficiary=None, purpose="end")


def limited(
    many: int, told: int, stage: Literal["saves", "ends"] = "saves", notes: Mapping[str, str] = MappingProxyType({})
) -> list[Sent]:
    """A gang whose time limit is over at the deadline."""
    pods = pods_of(many, 0, notes=notes)
    for sent in pods[:told]:
        with_record(sent, EvictionRecord("", msgspec.structs.replace(OVER, stage=stage), limit=LIMIT, count=many))
    return pods


def test_who_has_saved_its_work_runs_on_until_its_time_limit_is_over() -> None:
    pods = limited(2, 1, notes=SAVES)
    assert told(only(facts(pods))) == ["runs-1"]
    pods = [saved(sent, "1970-01-01T00:00:11Z") for sent in limited(2, 2, notes=SAVES)]
    assert only(facts(pods)) == Wait("until 1970-01-01T00:01:10Z: it may run for so long")
    assert isinstance(only(facts(pods), DEADLINE), BeginEviction)


def test_who_saves_nothing_ends_when_its_time_limit_is_over_and_not_before() -> None:
    assert isinstance(only(facts(limited(2, 1)), Instant(DEADLINE - 1)), Wait)
    assert isinstance(only(facts(limited(2, 1)), DEADLINE), BeginEviction)


def test_a_budget_puts_the_end_off_and_never_calls_it_off() -> None:
    kept = budget(1)
    assert only(facts(limited(2, 1), kept), DEADLINE) == Wait(forbidden_by(limited(2, 1), kept))
    assert isinstance(only(facts(limited(2, 1, "ends"), kept), DEADLINE), Wait)
    assert told(only(facts(limited(2, 1, "ends"), budget(2)), DEADLINE)) == ["runs-1", "runs-0"]


def forbidden_by(pods: list[Sent], *budgets: Sent) -> str:
    return facts(pods, *budgets).forbidden


def test_rounds_know_of_it_once_it_ends() -> None:
    def asked(pods: list[Sent]) -> list[tuple[str, str]]:
        return [(intent.kind, intent.purpose) for intent in found(pods).intents]

    assert asked(limited(2, 1)) == []
    assert asked(limited(2, 1, "ends")) == [("stop", "end")]
    wanted = with_record(limited(2, 1)[0], EvictionRecord("", msgspec.structs.replace(STOP, asked_at=Instant(11_000))))
    assert asked([wanted, *limited(2, 2)[1:]]) == [("stop", "evict")]
