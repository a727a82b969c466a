"""The map has every GPU once, with its holder, in the order of places; and is made once for a pass."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.model.health_record import NodeHealth, PartHealth
from reconciler.web.cluster_map import (
    CHANGING,
    CORDONED,
    FREE,
    IN_PARTS,
    NOT_READY,
    NOT_WELL,
    PART,
    PROMISED,
    RESERVED,
    SUSPECT,
    WELL,
    ClusterMap,
    Runs,
    map_of,
    runs,
    suspects_of,
)
from reconciler.web.natural_order import natural
from solver.model.cluster import DeviceId, GpuType, MigInstance, Node, NodeName
from solver.model.inflight import InFlight, Intent, Repartitioning, Reservation, declared_holder
from solver.model.quantities import Duration, Instant, Memory, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, MigSlot, TaskPlacement, TopologyRequest
from tests.reconciler.api.conftest import POLICY, spec
from tests.reconciler.web.conftest import Console
from tests.reconciler.web.test_cluster_summary import node, task


def unrolled(of: Runs) -> list[int]:
    return [value for value, number in zip(of[::2], of[1::2], strict=True) for _ in range(number)]


@given(st.lists(st.integers(-2, 3)))
def test_runs_say_what_was_there_and_no_more(values: list[int]) -> None:
    packed = runs(values)
    assert unrolled(packed) == values
    assert all(before != after for before, after in zip(packed[::2], packed[2::2], strict=False))


def test_names_in_natural_order() -> None:
    assert sorted(["b10", "b2", "a", "b", "2", "b2c"], key=natural) == ["2", "a", "b", "b2", "b2c", "b10"]


def job(name: str, *tasks: TaskPlacement, **known: object) -> Job:
    running = Job(JobName(name), Instant(0), spec(), "ada", "running", 1, placement=tasks)
    return msgspec.structs.replace(running, **known)


def part_lines(made: ClusterMap) -> list[tuple[object, ...]]:
    """GPU, start, size, job, MIG profile and why it leaves, in words."""
    names, profiles, purposes = made.jobs.name, made.profiles, ("", *made.purposes)
    return [
        (gpu, start, size, names[job] if job >= 0 else "", profiles[profile] if profile >= 0 else "", purposes[leaves])
        for gpu, start, size, job, profile, leaves in zip(*(made.parts[at::PART] for at in range(PART)), strict=True)
    ]


def test_each_gpu_has_its_holder_where_it_lies() -> None:
    jobs = (
        job("whole", task("n2", 0, 1), started_at=Instant(1_000), time_limit=Duration(60_000)),
        job("part", task("n10", 1, share=MilliGpu(250))),
        job("other-part", task("n10", 1, share=MilliGpu(500))),
        job("gone", task("n99", 0)),
    )
    snapshot = snapshot_of(Instant(0), (node("n10", "r10"), node("n2", "r2", cordoned=True)), jobs)
    made = map_of(snapshot, POLICY)
    assert (made.nodes, made.racks, made.rack_block) == (("n2", "n10"), ("r2", "r10"), (0, 0))
    whole = made.jobs.name.index("whole")
    assert unrolled(made.held) == [whole, whole, FREE, FREE, FREE, IN_PARTS, FREE, FREE]
    assert unrolled(made.state) == [CORDONED] * 4 + [WELL] * 4
    # In the order of the jobs, as their names have it.
    assert part_lines(made) == [(5, 0, 500, "other-part", "", ""), (5, 500, 250, "part", "", "")]
    assert (made.jobs.since[whole], made.jobs.until[whole]) == ("1970-01-01T00:00:01Z", "1970-01-01T00:01:01Z")
    assert made.parents == (-1, 0, 0)


def divided(gpu_type: str, *instances: MigInstance) -> Node:
    """A node whose second GPU has these."""
    known = node("n1", "r1")
    cut = msgspec.structs.replace(known.gpus[1], instances=instances)
    return msgspec.structs.replace(known, gpu_type=GpuType(gpu_type), gpus=(known.gpus[0], cut, *known.gpus[2:]))


def on(instance: MigInstance, cost: int) -> TaskPlacement:
    slot = MigSlot(DeviceId("n1/1"), instance, MilliGpu(cost))
    return TaskPlacement("worker", 0, NodeName("n1"), mig=slot)


@pytest.mark.parametrize(
    ("gpu_type", "instances", "cost", "parts"),
    [
        # Eighths of an H100; its last one is left over.
        (
            "H100-SXM5-80GB",
            (MigInstance("3g.40gb", 0), MigInstance("1g.10gb", 4), MigInstance("2g.20gb", 5)),
            125,
            [(1, 0, 500, "", "3g.40gb", ""), (1, 500, 125, "runs", "1g.10gb", ""), (1, 625, 250, "", "2g.20gb", "")],
        ),
        # Quarters of an A30.
        (
            "A30-24GB",
            (MigInstance("2g.12gb", 0), MigInstance("1g.6gb", 3)),
            250,
            [(1, 0, 500, "", "2g.12gb", ""), (1, 750, 250, "runs", "1g.6gb", "")],
        ),
    ],
)
def test_instances_lie_where_the_model_of_the_gpu_has_them(
    gpu_type: str, instances: tuple[MigInstance, ...], cost: int, parts: list[tuple[object, ...]]
) -> None:
    held = instances[1]
    made = map_of(snapshot_of(Instant(0), (divided(gpu_type, *instances),), (job("runs", on(held, cost)),)), POLICY)
    assert part_lines(made) == parts
    assert unrolled(made.held) == [FREE, IN_PARTS, FREE, FREE]


def test_a_gpu_in_instances_that_no_job_holds_is_divided_all_the_same() -> None:
    made = map_of(snapshot_of(Instant(0), (divided("A30-24GB", MigInstance("4g.24gb", 0)),), ()), POLICY)
    assert part_lines(made) == [(1, 0, 1000, "", "4g.24gb", "")]
    assert unrolled(made.held) == [FREE, IN_PARTS, FREE, FREE]


def test_what_is_kept_says_for_which_job_and_from_when() -> None:
    hour = Instant(3_600_000)
    promise = Intent("nominate", JobName("waits"), 1, Instant(0), hour, (task("n1", 0),))
    soon = Reservation(JobName("gang"), (task("n1", 0, 2),), hour, hour.after(Duration(60_000)))
    late = Reservation(JobName("later"), (task("n1", 2, 3),), hour.after(Duration(1)))
    declared = Reservation(declared_holder("course"), (task("n1", 1),), hour)
    waiting = tuple(msgspec.structs.replace(job(name), phase="pending") for name in ("waits", "gang", "later", "idle"))
    in_flight = InFlight(intents=(promise,), reservations=(soon, late, declared))
    made = map_of(
        snapshot_of(Instant(0), (node("n1", "r1"),), (job("runs", task("n1", 1)), *waiting), in_flight), POLICY
    )
    assert unrolled(made.kept) == [PROMISED, RESERVED, RESERVED, RESERVED]
    assert [made.jobs.name[number] for number in unrolled(made.keeper)] == [
        "waits",
        "reservation:course",
        "gang",
        "later",
    ]
    waits = {made.jobs.name[number]: (made.jobs.since[number], made.jobs.until[number]) for number in made.jobs.waits}
    assert waits == {
        "waits": ("", ""),
        "gang": ("1970-01-01T01:00:00Z", "1970-01-01T01:01:00Z"),
        "later": ("1970-01-01T01:00:00.001Z", ""),
        "reservation:course": ("1970-01-01T01:00:00Z", ""),
    }
    assert made.jobs.queue[made.jobs.name.index("reservation:course")] == FREE


def test_what_leaves_says_why_gpu_by_gpu() -> None:
    hour = Instant(3_600_000)
    second = msgspec.structs.replace(task("n1", 2), index=1)
    part = task("n1", 3, share=MilliGpu(500))
    intents = (
        Intent("stop", JobName("evicted"), 1, Instant(0), hour, purpose="evict"),
        Intent("stop", JobName("part"), 1, Instant(0), hour, purpose="suspend"),
        Intent("shrink", JobName("shrinks"), 1, Instant(0), hour, (second,)),
    )
    jobs = (job("evicted", task("n1", 0)), job("shrinks", task("n1", 1), second), job("part", part))
    made = map_of(snapshot_of(Instant(0), (node("n1", "r1"),), jobs, InFlight(intents=intents)), POLICY)
    assert [("", *made.purposes)[why] for why in unrolled(made.leaves)] == ["evict", "", "shrink", ""]
    assert part_lines(made) == [(3, 0, 500, "part", "", "suspend")]


def test_a_gpu_that_takes_no_work_says_why_not() -> None:
    """What is worse counts."""
    changing = Repartitioning(NodeName("well"), DeviceId("well/3"), 1, Instant(0), Instant(1))
    known = node("well", "r1")
    ill = msgspec.structs.replace(known.gpus[0], healthy=False)
    nodes = (
        msgspec.structs.replace(known, gpus=(ill, *known.gpus[1:])),
        node("lost", "r2", ready=False, cordoned=True),
        node("shut", "r3", cordoned=True),
        node("doubted", "r4"),
    )
    found: dict[str, tuple[PartHealth, ...]] = {
        "well": (
            PartHealth("well/0", "suspect", Instant(0), ""),
            PartHealth("well/1", "suspect", Instant(0), ""),
            PartHealth("well/2", "well", Instant(0), ""),
        ),
        "lost": (PartHealth("", "suspect", Instant(0), ""),),
        "doubted": (PartHealth("", "suspect", Instant(0), ""),),
    }
    suspects = suspects_of(NodeHealth(NodeName(name), parts=parts) for name, parts in found.items())
    made = map_of(snapshot_of(Instant(0), nodes, (), InFlight(repartitions=(changing,))), POLICY, suspects)
    states = unrolled(made.state)
    assert states[:4] == [NOT_WELL, SUSPECT, WELL, CHANGING]
    assert states[4::4] == [NOT_READY, CORDONED, SUSPECT]


def test_nodes_of_an_island_lie_together() -> None:
    nodes = (
        node("n1", "r1", island="b"),
        node("n2", "r1", island="a"),
        node("n3", "r1", island="b"),
        node("n4", "r1"),
        node("n5", "r1", island="a", pool="other"),
    )
    made = map_of(snapshot_of(Instant(0), nodes, ()), POLICY)
    assert made.nodes == ("n4", "n2", "n5", "n1", "n3")
    # Islands are named within their pool.
    assert (made.islands, unrolled(made.node_island)) == (("a", "a", "b"), [FREE, 0, 1, 2, 2])


def test_what_a_job_asks_of_its_place_is_said() -> None:
    asked = TopologyRequest(required="rack", preferred=("island",))
    one = msgspec.structs.replace(spec(2), topology=asked)
    group = msgspec.structs.replace(one.task_groups[0], replicas=2)
    shape = msgspec.structs.replace(group.shape, gpu_types=(GpuType("H100"), GpuType("A100")), node_labels=("a=b",))
    shape = msgspec.structs.replace(shape, min_gpu_memory=Memory(40 << 30))
    one = msgspec.structs.replace(one, task_groups=(msgspec.structs.replace(group, shape=shape),))
    made = map_of(snapshot_of(Instant(0), (node("n1", "r1"),), (job("runs", task("n1", 0), spec=one),)), POLICY)
    assert made.jobs.place == (
        "on H100 or A100; on GPUs of at least 40Gi; on nodes with a=b; all in one rack; in one island if it can be",
    )


def test_it_is_sent_packed_and_again_only_when_it_is_another(console: Console) -> None:
    with console.browser() as browser:
        first = browser.get("/map.json")
        assert first.headers["content-encoding"] == "gzip"
        assert total(first.json()["held"]) == 8
        again = browser.get("/map.json", headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        bound = TaskPlacement("worker", 0, NodeName("n1"), (DeviceId("n1/0"),))
        console.site.store.jobs.submit(JobName("new"), spec(), "ada", console.clock.now(), "key")
        console.site.bind("new", bound)
        after = browser.get("/map.json", headers={"if-none-match": first.headers["etag"]})
        assert json.loads(after.text)["jobs"]["name"] == ["new"]


def total(packed: Iterable[int]) -> int:
    return sum(tuple(packed)[1::2])
