"""Gangs that one round starts are right beside each other: anti-affinity both ways, spread and affinity, judged by counting."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from reconciler.kubernetes.binder.journal import GangBinding
from reconciler.kubernetes.control.sight import Sight
from reconciler.kubernetes.control.start_order import PATIENCE_S
from reconciler.kubernetes.control.starts import bindings_of
from reconciler.kubernetes.objects import names
from solver.model.inflight import Intent, IntentKind
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName
from solver.plan.plan import Bind, Evict, Nominate, Plan
from tests.reconciler.kubernetes.control.rounds import NOW, Rounds
from tests.reconciler.kubernetes.samples import Sent, node, pod
from tests.reconciler.kubernetes.test_constraints import HOST, RACK, away, spread

RACK_OF = {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
NODES = [node(name, labels={RACK: rack}) for name, rack in RACK_OF.items()]


def web(name: str, gpus: int = 1, spec: Sent | None = None, app: str = "train", gang: str = "", size: int = 1) -> Sent:
    notes = {names.GANG: gang, names.GANG_SIZE: str(size)} if gang else {}
    return pod(name, gpus, labels={"app": app}, spec=spec or {}, annotations=notes)


def test_pods_that_keep_each_other_away_are_each_on_a_node_of_their_own() -> None:
    rounds = Rounds(NODES, [web(f"w{number}", spec=away(HOST)) for number in range(6)])
    assert 1 < rounds.until_rest() <= 4
    assert sorted(rounds.bound.values()) == ["a1", "a2", "b1", "b2"]


def test_one_is_started_and_the_others_name_it() -> None:
    rounds = Rounds([node("a1")], [web(f"w{number}", spec=away(HOST)) for number in range(2)])
    assert rounds.take() == 1
    ((first, _),) = rounds.bound.items()
    second = JobName(f"vision.pod.{'w1' if first == 'w0' else 'w0'}")
    why = f"its required anti-affinity by {HOST} keeps it away from vision.pod.{first}, which starts first"
    assert rounds.order.postponed == {second: why}
    assert rounds.noted == [("start-postponed", second, why)]
    assert rounds.take() == 0
    assert rounds.order.postponed == {}
    assert f"required anti-affinity to pod vision/{first} by {HOST} leaves no node" in str(
        rounds.sight().gangs[second].refusals
    )
    rounds.delete(first)
    assert rounds.take() == 1


@pytest.mark.parametrize("first_asks", [True, False])
def test_it_counts_both_ways(first_asks: bool) -> None:
    """Only one of two asks; whichever starts first, the other is not put beside it."""
    asking = away(RACK, app="other")
    meant: Sent = {}
    pods = [
        web("a", spec=asking if first_asks else meant, app="train" if first_asks else "other"),
        web("b", spec=meant if first_asks else asking, app="other" if first_asks else "train"),
    ]
    rounds = Rounds(NODES, pods)
    assert rounds.until_rest() == 2
    assert {RACK_OF[on] for on in rounds.bound.values()} == {"a", "b"}
    ((_, _, why),) = rounds.noted
    assert why.startswith("the required" if first_asks else "its required")


def test_pods_are_spread_evenly_though_they_start_together() -> None:
    rounds = Rounds(NODES, [web(f"w{number}", spec=spread(HOST)) for number in range(10)])
    rounds.until_rest()
    counts = Counter(rounds.bound.values())
    assert sum(counts.values()) == 10
    assert max(counts.values()) - min(counts.values()) <= 1


def test_pods_that_want_each_other_near_are_in_one_domain() -> None:
    rounds = Rounds(NODES, [web(f"w{number}", 8, spec=away(RACK, "podAffinity")) for number in range(4)])
    rounds.until_rest()
    assert len(rounds.bound) == 2
    assert len({RACK_OF[on] for on in rounds.bound.values()}) == 1
    by_host = Rounds(NODES, [web(f"w{number}", 4, spec=away(HOST, "podAffinity")) for number in range(3)])
    by_host.until_rest()
    assert len(by_host.bound) == 2
    assert len(set(by_host.bound.values())) == 1


def test_the_first_that_wants_others_near_needs_a_domain() -> None:
    rounds = Rounds([node("x"), *NODES], [web("w", spec=away(RACK, "podAffinity"))])
    rounds.until_rest()
    assert set(rounds.bound.values()) < set(RACK_OF)


def test_gangs_of_one_pod_a_node_keep_to_it_also_where_a_pod_is_replaced() -> None:
    pods = [web(f"{gang}{number}", spec=away(HOST), gang=gang, size=2) for gang in "ab" for number in range(2)]
    rounds = Rounds(NODES, pods)
    rounds.until_rest()
    before = rounds.bound
    assert sorted(before.values()) == ["a1", "a2", "b1", "b2"]
    rounds.delete("a1")
    rounds.tell(web("a2", spec=away(HOST), gang="a", size=2))
    rounds.until_rest()
    assert rounds.bound == {"a0": before["a0"], "a2": before["a1"], "b0": before["b0"], "b1": before["b1"]}


def test_what_is_neither_asked_nor_meant_is_not_held_up() -> None:
    pods = [web("w0", spec=away(HOST)), web("w1", app="other"), web("w2", app="other", spec=away(HOST, app="nobody"))]
    rounds = Rounds([node("a1")], pods)
    assert rounds.take() == 3


def test_the_world_is_as_it_was_after_a_trial() -> None:
    rounds = Rounds(NODES, [web(f"w{number}", spec=away(HOST)) for number in range(4)])
    before = rounds.world.cluster()
    assert len(rounds.settled().starts) < 4
    assert rounds.world.cluster() is before
    assert rounds.settled() == rounds.settled()


def test_a_gang_of_which_one_pod_does_not_go_with_another_waits_whole() -> None:
    pods = [web("w", spec=away(HOST, app="other")), *(web(f"b{n}", 5, app="other", gang="b", size=2) for n in range(2))]
    rounds = Rounds(NODES[:2], pods)
    assert rounds.take() == 1
    assert set(rounds.bound) in ({"w"}, {"b0", "b1"})
    assert rounds.take() == 0


def test_a_trial_makes_nothing_anew() -> None:
    """What was kept away by a pod that was there on trial alone need not be asked again."""
    rounds = Rounds(NODES, [web("w", spec=away(HOST, app="other")), *(web(f"o{n}", 9, app="other") for n in range(5))])
    rounds.settled()
    before = rounds.world.work.gangs
    rounds.world.cluster()
    assert rounds.world.work.gangs == before


def test_pods_on_their_way_count_as_there() -> None:
    """Of a gang that was begun one pod is bound; where the other goes stands in its journal."""
    rounds = Rounds(NODES[:1], [web("a0", spec=away(RACK, app="other"), gang="a", size=1), web("b0", app="other")])
    plan, sight = rounds.decided()
    (first,) = (step for step in plan.steps if isinstance(step, Bind) and step.job == "vision.gang.a")
    coming = replace(sight, intents=(_intent(first),))
    assert [gang.job for gang in rounds.order.settled((), _bindings(plan, sight, "b0"), coming).starts] == []
    assert [gang.job for gang in rounds.order.settled((), _bindings(plan, sight, "b0"), sight).starts] == [
        "vision.pod.b0"
    ]


def test_two_are_not_promised_what_only_one_can_have() -> None:
    rounds = Rounds(NODES, [web(f"w{number}", spec=away(HOST)) for number in range(2)])
    plan, sight = rounds.decided()
    promises = [Nominate(step.job, 1, step.tasks, step.deadline) for step in plan.steps if isinstance(step, Bind)]
    first, second = (step.job for step in promises)
    assert rounds.order.settled(promises, (), sight).unpromised == {second}
    assert rounds.order.postponed == {}
    beneficiary = JobName("vision.pod.other")
    moves = Evict(second, 0, "move", promises[0].deadline, MilliGpu.gpus(1), 0.0, beneficiary)
    assert rounds.order.settled([*promises, moves], (), sight).unpromised == {second, beneficiary}
    promised = replace(sight, intents=(_intent(promises[0], "nominate"),))
    assert rounds.order.settled(promises[1:], (), promised).unpromised == {second}
    assert rounds.order.settled(promises[:1], (), promised).unpromised == frozenset()
    assert first != second


def test_a_gang_that_is_never_bound_does_not_hold_up_another_for_ever() -> None:
    rounds = Rounds([node("a1")], [web(f"w{number}", spec=away(HOST)) for number in range(2)])
    (first,) = (gang.job for gang in rounds.settled().starts)
    rounds.clock.advance(int(PATIENCE_S * 1000) - 1)
    assert [gang.job for gang in rounds.settled().starts] == [first]
    rounds.clock.advance(1)
    (second,) = (gang.job for gang in rounds.settled().starts)
    assert second != first
    assert set(rounds.order.postponed) == {first}


@pytest.mark.parametrize("seed", range(30))
def test_of_any_pods_none_is_where_another_forbids_it(seed: int) -> None:
    """Judged by what pods say and where they are in the end, pair by pair."""
    chance = Random(seed)
    pods = []
    for number in range(14):
        kind = chance.choice(("away", "spread", "none"))
        key, app = chance.choice((HOST, RACK)), chance.choice("xy")
        spec = {"away": away(key, app=chance.choice("xy")), "spread": spread(key), "none": {}}[kind]
        app = "train" if kind == "spread" else app
        pods.append(web(f"p{number}", chance.choice((1, 2, 4)), spec, app))
    rounds = Rounds(NODES, pods)
    rounds.until_rest()
    assert rounds.bound
    for name, on in rounds.bound.items():
        for term in _anti(rounds.pods[name]):
            meant = [
                other
                for other, there in rounds.bound.items()
                if other != name
                and _app(rounds.pods[other]) == term["labelSelector"]["matchLabels"]["app"]
                and _domain(there, term["topologyKey"]) == _domain(on, term["topologyKey"])
            ]
            assert meant == [], (name, on, rounds.bound)


def _intent(step: Bind | Nominate, kind: IntentKind = "start") -> Intent:
    return Intent(kind, step.job, step.attempt, NOW, NOW.after(step.deadline), step.tasks)


def _bindings(plan: Plan, sight: Sight, pod: str) -> list[GangBinding]:
    return [one for one in bindings_of(plan.steps, sight.gangs) if one.pods[0].name == pod]


def _anti(sent: Sent) -> list[Sent]:
    found = sent["spec"].get("affinity", {}).get("podAntiAffinity", {})
    return list(found.get("requiredDuringSchedulingIgnoredDuringExecution", ()))


def _app(sent: Sent) -> str:
    return str(sent["metadata"]["labels"]["app"])


def _domain(on: str, key: str) -> str:
    return on if key == HOST else RACK_OF[on]
