"""The checker finds the same whatever it judged before: what it knows again of nodes and jobs is what they are."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.checker import case
from solver.checker.case import JudgedPlan, NodeIndex
from solver.checker.check import violations
from solver.model.cluster import DeviceId, Gpu, MigInstance, Node
from solver.model.kept_columns import KeptValues
from solver.model.snapshot import Snapshot
from solver.plan.plan import Bind, Plan
from tests.drawn import worlds
from tests.solver.model.test_round_cache import chain
from tests.solver.worlds import node


@st.composite
def changed(draw: st.DrawFn, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Some nodes have other GPUs than before, by name or by what they are partitioned into; there may be one more or less."""
    found = list[Node]()
    for known in nodes:
        one = known
        if draw(st.booleans()):
            count, instances = draw(st.integers(0, 3)), draw(st.sampled_from([None, (MigInstance("7g.80gb", 0),)]))
            gpus = tuple(Gpu(DeviceId(f"{one.name}/{number}"), number, instances=instances) for number in range(count))
            one = msgspec.structs.replace(one, gpus=gpus)
        found.append(one)
    return tuple(found[: draw(st.integers(max(1, len(found) - 1), len(found)))])


@worlds(200)
@given(st.data())
def test_it_knows_the_gpus_of_the_nodes_that_it_is_asked_of(data: st.DataObject) -> None:
    nodes: tuple[Node, ...] = tuple(node(f"n{number}", 2) for number in range(4))
    for _ in range(5):
        nodes = data.draw(changed(nodes))
        latest, anew = NodeIndex.latest(nodes), NodeIndex(nodes)
        assert latest.gpus == anew.gpus
        assert latest.partitioned == {
            gpu: of[1].instances for gpu, of in anew.gpus.items() if of[1].instances is not None
        }
        assert (latest.by_name, latest.gpu_types, latest.capacity) == (anew.by_name, anew.gpu_types, anew.capacity)


def spoilt(chance: random.Random, snapshot: Snapshot, plan: Plan) -> Plan:
    """Some starts are where they can't be: on devices of others, or in place of others."""
    binds = [step for step in plan.steps if isinstance(step, Bind)]
    running = [job for job in snapshot.jobs if job.placement]
    others = {step.job: chance.choice(running).placement for step in chance.sample(binds, min(3, len(binds)))}
    steps = (
        msgspec.structs.replace(step, tasks=others[step.job]) if isinstance(step, Bind) and step.job in others else step
        for step in plan.steps
    )
    return msgspec.structs.replace(plan, steps=tuple(steps))


def test_it_finds_the_same_whatever_it_judged_before(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, judged = random.Random(1), list[object]()
    rounds = [(*known, spoilt(chance, known[0], plan)) for known, plan in chain(1)]
    for known in (*rounds, *chance.sample(rounds, len(rounds))):
        found = violations(*known)
        with monkeypatch.context() as patch:
            patch.setattr(case, "_LATEST", [NodeIndex(())])
            patch.setattr(case, "_HELD", KeptValues())
            patch.setattr(case, "_GPUS_IN_PARTS", KeptValues())
            assert found == violations(*known)
        judged.append(found)
    assert any(judged)


def test_what_jobs_hold_is_added_up_for_those_that_are_new(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, policy), plan = chain(1)[0]
    asked, charge = list[object](), NodeIndex.charge

    def counted(self: NodeIndex, tasks: object) -> object:
        asked.append(tasks)
        return charge(self, tasks)  # type: ignore[arg-type]

    monkeypatch.setattr(case, "_HELD", KeptValues())
    monkeypatch.setattr(NodeIndex, "charge", counted)
    held = JudgedPlan.of(first, policy, plan).held
    assert len(asked) == len(held) == sum(bool(job.placement) for job in first.jobs)
    asked.clear()
    fewer = msgspec.structs.replace(first, jobs=first.jobs[1:])
    other = replace(JudgedPlan.of(fewer, policy, plan))
    assert other.held == {name: of for name, of in held.items() if name != first.jobs[0].name}
    assert asked == []
