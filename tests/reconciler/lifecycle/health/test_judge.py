"""What nodes are fit for: findings over time, with pauses, times that run out, and people who say otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.lifecycle.health.effects import closed_places, cordons, drained_places
from reconciler.lifecycle.health.judge import judge
from reconciler.lifecycle.health.signs import Sign, signs_of
from reconciler.lifecycle.health.stragglers import Accusation
from reconciler.model.facts import GpuFacts, NicFacts, NodeFacts, Xid
from reconciler.model.health_policy import (
    Action,
    ConditionRule,
    EccActions,
    HealthPolicy,
    NicRule,
    StragglerRule,
    XidActions,
)
from reconciler.model.health_record import FindingKey, NodeHealth
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory
from solver.model.workload import JobName

START = Instant(1_700_000_000_000)
NODE = Node(NodeName("n1"), "pool", Cpu(1_000), Memory(2**30))
GPU = GpuFacts(DeviceId("gpu-0"))
MINUTE = 60_000
HOUR = 60 * MINUTE


@dataclass
class Ward:
    """One node under observation."""

    policy: HealthPolicy = field(default_factory=HealthPolicy)
    health: NodeHealth = field(default_factory=lambda: NodeHealth(NODE.name))
    now: Instant = START
    history: list[str] = field(default_factory=list)

    def look(
        self,
        gpu: GpuFacts | None = GPU,
        nics: tuple[NicFacts, ...] = (),
        ready: bool = True,
        by: Sequence[str] = (),
        after_ms: int = 0,
    ) -> Ward:
        """Some time passes, then all of this is seen. `gpu` None: nothing is told of the hardware."""
        self.now = self.now.after(after_ms)
        facts = None if gpu is None else NodeFacts(NODE.name, self.now, (gpu,), nics)
        accused = [Accusation(NODE.name, JobName(job), "worker/0", 1.0, 2.0) for job in by]
        signs = signs_of(msgspec.structs.replace(NODE, ready=ready), facts, accused, self.policy)
        self.health = judge(self.health, signs, facts is not None, self.policy, self.now)
        if not self.history or self.history[-1] != self.state:
            self.history.append(self.state)
        return self

    def lasts(self, span_ms: int, gpu: GpuFacts | None = GPU, **seen: Any) -> Ward:
        """The same is seen for some time, every 10 seconds."""
        for _ in range(span_ms // 10_000):
            self.look(gpu, after_ms=10_000, **seen)
        return self

    def forgive(self) -> None:
        self.health = msgspec.structs.replace(self.health, forgiven_at=self.now)

    @property
    def state(self) -> str:
        """`well`, or every part with its state."""
        return " ".join(f"{part.part or 'node'}:{part.state}" for part in self.health.parts) or "well"


def xid(number: int, at: Instant = START) -> GpuFacts:
    return msgspec.structs.replace(GPU, xids=(Xid(number, at),))


HOT = msgspec.structs.replace(GPU, throttle_reasons=("hardware-thermal",))
FAILED = msgspec.structs.replace(GPU, remap_failed=True)


@pytest.mark.parametrize(
    ("gpu", "state"),
    [
        (GPU, "well"),
        (xid(31), "well"),
        (xid(48), "gpu-0:drained"),
        (xid(79), "gpu-0:drained"),
        (xid(64), "gpu-0:drained"),
        (FAILED, "gpu-0:drained"),
        (msgspec.structs.replace(GPU, remap_pending=True), "gpu-0:cordoned"),
        (msgspec.structs.replace(GPU, uncorrectable_errors=2), "gpu-0:suspect"),
        (msgspec.structs.replace(GPU, lost=True), "gpu-0:drained"),
        (HOT, "well"),
    ],
)
def test_what_follows_from_what_is_told_once(gpu: GpuFacts, state: str) -> None:
    assert Ward().look(gpu).state == state


def test_policy_says_what_follows() -> None:
    ward = Ward(
        HealthPolicy(xid=XidActions(application="cordon", reset="ignore"), ecc=EccActions(remap_failed="suspect"))
    )
    assert ward.look(xid(31)).state == "gpu-0:cordoned"
    assert Ward(ward.policy).look(xid(48)).state == "well"
    assert Ward(ward.policy).look(FAILED).state == "gpu-0:suspect"
    ward.policy = HealthPolicy()
    assert ward.look(xid(31)).state == "well", "a change of policy holds for what was found before"


def test_heat_counts_once_it_has_lasted_and_pauses_in_between_do_not_end_it() -> None:
    ward = Ward()
    for minute in range(10):
        assert ward.look(GPU if minute == 5 else HOT, after_ms=MINUTE).state == "well"
    assert ward.look(HOT, after_ms=MINUTE).state == "gpu-0:suspect"


def test_heat_that_comes_again_and_again_for_a_moment_is_no_finding() -> None:
    ward = Ward()
    for _ in range(20):
        assert ward.look(HOT, after_ms=4 * MINUTE).look(GPU, after_ms=MINUTE).state == "well"


@given(st.lists(st.booleans(), min_size=30, max_size=30))
def test_what_comes_and_goes_does_not_flap(hot: list[bool]) -> None:
    """Within its time it becomes suspect at most once, and does not become well in between."""
    ward = Ward()
    for each in hot:
        ward.look(HOT if each else GPU, after_ms=MINUTE)
    assert ward.history in (["well"], ["well", "gpu-0:suspect"])


def test_a_finding_counts_until_its_time_is_over_and_what_happened_once_counts_once() -> None:
    ward = Ward()
    ward.look(xid(48))
    (part,) = ward.health.parts
    assert (part.since, part.until, part.reason) == (START, START.after(24 * HOUR), "XID 48")
    assert ward.look(xid(48), after_ms=24 * HOUR - 1).state == "gpu-0:drained"
    assert ward.look(xid(48), after_ms=1).state == "well"
    assert ward.look(xid(48), after_ms=HOUR).state == "well", "it is still told of the same"
    again = msgspec.structs.replace(GPU, xids=(Xid(48, START), Xid(48, ward.now)))
    assert ward.look(again).state == "gpu-0:drained"


def test_an_old_event_that_is_told_late_is_over_already() -> None:
    assert Ward(now=START.after(25 * HOUR)).look(xid(48)).state == "well"


def test_a_gpu_to_be_replaced_comes_back_by_hand_alone() -> None:
    ward = Ward()
    assert ward.look(xid(64)).look(GPU, after_ms=1_000 * HOUR).state == "gpu-0:drained"
    assert ward.health.parts[0].until is None
    ward.forgive()
    assert ward.look(GPU, after_ms=1).state == "well"


def test_what_lasts_is_counted_from_when_it_was_seen_last() -> None:
    ward = Ward()
    for _ in range(30):
        assert ward.look(FAILED, after_ms=HOUR).state == "gpu-0:drained"
    assert ward.look(GPU, after_ms=24 * HOUR - MINUTE).state == "gpu-0:drained"
    assert ward.look(GPU, after_ms=MINUTE).state == "well"
    assert ward.health.findings == ()


def test_who_lets_a_node_take_work_again_is_not_contradicted_by_what_was_known() -> None:
    ward = Ward()
    ward.look(FAILED)
    ward.forgive()
    assert ward.look(FAILED, after_ms=MINUTE).state == "well"
    for _ in range(10):
        assert ward.look(FAILED, after_ms=MINUTE // 3).state == "well"
    assert ward.look(GPU, after_ms=10 * MINUTE).look(FAILED).state == "gpu-0:drained", "it has come anew"


def test_silence_proves_nothing() -> None:
    ward = Ward()
    more = msgspec.structs.replace(GPU, uncorrectable_errors=1)
    ward.look(more)
    ward.forgive()
    ward.look(more, after_ms=MINUTE)
    assert ward.look(None, after_ms=HOUR).look(more).state == "well", "the same error as before"
    assert ward.look(msgspec.structs.replace(GPU, uncorrectable_errors=2)).state == "gpu-0:suspect"


def test_a_node_that_was_lost_for_long_is_suspect_when_it_is_back() -> None:
    ward = Ward()
    assert ward.look(None, ready=False).lasts(5 * MINUTE - 10_000, None, ready=False).state == "well"
    assert ward.lasts(10_000, None, ready=False).state == "node:suspect"
    assert ward.look().state == "node:suspect"


def test_interfaces_that_policy_names_are_to_be_up_and_fast() -> None:
    policy = HealthPolicy(nic=NicRule(("ib0",), slower_than_mbps=200_000))
    slow, well = NicFacts("ib0", True, 100_000), NicFacts("ib0", True, 400_000)
    for nics in ((), (NicFacts("ib0", False),), (slow,)):
        ward = Ward(policy)
        assert ward.look(nics=nics).state == "well"
        assert ward.lasts(MINUTE, nics=nics).state == "node:cordoned"
    assert Ward(policy).lasts(5 * MINUTE, nics=(well, NicFacts("eth9", False))).history == ["well"]
    assert Ward(policy).lasts(5 * MINUTE, None).history == ["well"], "nobody told of it"


@given(st.lists(st.booleans(), min_size=4, max_size=20), st.sampled_from(["suspect", "cordon", "drain"]))
def test_one_gang_alone_only_makes_suspect(slow: list[bool], several: Action) -> None:
    ward = Ward(HealthPolicy(straggler=StragglerRule(several=several, held=Duration(30_000))))
    for each in slow:
        ward.lasts(30_000, by=["a"] if each else [])
        assert ward.state in ("well", "node:suspect")
    assert not closed_places((ward.health,))


def test_two_gangs_cordon_a_node_also_one_after_the_other() -> None:
    ward = Ward()
    for _ in range(12):
        ward.look(by=["a"], after_ms=MINUTE)
    assert ward.state == "node:suspect"
    for _ in range(9):
        assert ward.look(by=["b"], after_ms=MINUTE).state == "node:suspect"
    for _ in range(3):
        ward.look(by=["b"], after_ms=MINUTE)
    assert ward.state == "node:cordoned"
    (part,) = ward.health.parts
    assert "of a does" in part.reason
    assert "of b does" in part.reason
    ignored = Ward(HealthPolicy(straggler=StragglerRule("ignore", "ignore")))
    for _ in range(30):
        assert ignored.look(by=["a", "b"], after_ms=MINUTE).health.findings == ()


def test_what_follows_for_nodes_and_for_gpus() -> None:
    ward = Ward(HealthPolicy(lost="drain"))
    ward.look(msgspec.structs.replace(FAILED, remap_pending=True), ready=False)
    for _ in range(6):
        ward.look(FAILED, ready=False, after_ms=MINUTE)
    assert ward.state == "node:drained gpu-0:drained"
    assert closed_places((ward.health,)) == {"n1", "gpu-0"}
    assert drained_places((ward.health,)) == {
        "n1": "node n1 is drained (it is not ready)",
        "gpu-0": "GPU gpu-0 of n1 is drained (a row of its memory could not be remapped)",
    }
    (cordon,) = cordons((ward.health,))
    assert (cordon.kind, cordon.subject.name, cordon.author, cordon.reason) == (
        "cordon",
        "n1",
        "health",
        "it is not ready",
    )


@given(st.lists(st.sampled_from([GPU, HOT, FAILED, xid(48)]), max_size=20), st.integers(1, 90 * MINUTE))
def test_judging_the_same_again_changes_nothing(looks: list[GpuFacts], apart_ms: int) -> None:
    ward = Ward()
    for gpu in looks:
        ward.look(gpu, after_ms=apart_ms)
        judged = ward.health
        assert ward.look(gpu).health == judged


BROKEN = ConditionRule("XIDError", "drain", held=Duration(2 * MINUTE))
OF_NODE = HealthPolicy(conditions=(BROKEN, ConditionRule("Slow", "suspect")), bad_node_ttl=Duration(HOUR))


@dataclass
class KubeWard:
    """One node whose condition XIDError is looked at by a policy."""

    policy: HealthPolicy = OF_NODE
    health: NodeHealth = field(default_factory=lambda: NodeHealth(NODE.name))

    def look(self, at_ms: int, since_ms: int | None = None) -> str:
        """The state after a look at that time, at which it has been so since then; None: it is not so."""
        key = FindingKey("condition", "", BROKEN.subject)
        signs = () if since_ms is None else (Sign(key, "it is", at=START.after(since_ms)),)
        self.health = judge(self.health, signs, False, self.policy, START.after(at_ms))
        return " ".join(part.state for part in self.health.parts) or "well"


def test_what_a_node_says_to_be_so_counts_from_when_it_says_however_late_it_is_looked_at() -> None:
    assert KubeWard().look(5 * MINUTE, since_ms=0) == "drained"
    ward = KubeWard()
    assert ward.look(MINUTE, since_ms=0) == "well"
    assert ward.look(2 * MINUTE, since_ms=0) == "drained", (
        "a minute between two looks is no pause where nothing changed"
    )
    assert ward.health.findings[0].since == START


def test_a_condition_that_flaps_is_one_finding_and_the_node_stays_closed_until_its_time_is_over() -> None:
    ward = KubeWard()
    states = [
        ward.look(at, since) for at, since in ((0, 0), (15_000, 0), (20_000, None), (40_000, 40_000), (130_000, 40_000))
    ]
    assert states == ["well", "well", "well", "well", "drained"]
    assert [ward.look(3 * MINUTE), ward.look(10 * MINUTE, 10 * MINUTE), ward.look(20 * MINUTE)] == ["drained"] * 3
    assert ward.look(69 * MINUTE) == "drained"
    assert ward.look(70 * MINUTE) == "well"


def test_a_condition_that_was_well_for_longer_than_a_pause_begins_anew() -> None:
    ward = KubeWard()
    assert [ward.look(MINUTE, 0), ward.look(100_000), ward.look(170_000, 160_000)] == ["well"] * 3
    assert ward.look(160_000 + 2 * MINUTE, 160_000) == "drained"


def test_a_user_forgives_a_condition_until_it_comes_anew() -> None:
    ward = KubeWard()
    assert ward.look(2 * MINUTE, 0) == "drained"
    ward.health = msgspec.structs.replace(ward.health, forgiven_at=START.after(3 * MINUTE))
    assert ward.look(4 * MINUTE, 0) == "well"
    ward.look(5 * MINUTE)
    assert ward.look(20 * MINUTE, 10 * MINUTE) == "drained"


def test_a_rule_that_policy_takes_back_ends_what_followed_from_it_and_a_longer_time_does_not() -> None:
    ward = KubeWard()
    assert ward.look(2 * MINUTE, 0) == "drained"
    ward.policy = msgspec.structs.replace(OF_NODE, conditions=(msgspec.structs.replace(BROKEN, held=Duration(HOUR)),))
    assert ward.look(3 * MINUTE, 0) == "drained"
    ward.policy = HealthPolicy()
    assert ward.look(4 * MINUTE, 0) == "well"
