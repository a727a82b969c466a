"""What becomes of a world when a plan is acted on."""

from __future__ import annotations

from solver.model.cluster import DeviceId, NodeName
from solver.model.inflight import InFlight, Repartitioning
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from solver.narrow.acted_on import acted_on
from solver.plan.plan import Certificate, Plan, Repartition
from tests.solver.worlds import node


def test_a_gpu_that_is_to_become_something_else_before_it_has_become_the_first_is_asked_once() -> None:
    gpu = DeviceId("n1/0")
    asked = Repartitioning(NodeName("n1"), gpu, 3, Instant(0), Instant(9))
    world = snapshot_of(Instant(5), [node("n1", 2)], [], InFlight(repartitions=(asked,)))
    step = Repartition(NodeName("n1"), gpu)
    plan = Plan(world.digest, "", (step,), (), Certificate("none", (), 0.0, "", 0))
    (known,) = acted_on(world, plan).in_flight.repartitions
    assert (known.device, known.asked_at) == (gpu, Instant(5))
