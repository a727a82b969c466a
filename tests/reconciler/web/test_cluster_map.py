"""The map has every GPU once, with its holder, in the order of places; and is made once for a pass."""

from __future__ import annotations

import json
from collections.abc import Iterable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from reconciler.web.cluster_map import FREE, IN_PARTS, Runs, map_of, runs
from reconciler.web.natural_order import natural
from solver.model.cluster import DeviceId, MigInstance, NodeName
from solver.model.inflight import InFlight, Intent, Reservation
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, MigSlot, TaskPlacement
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


def test_each_gpu_has_its_holder_where_it_lies() -> None:
    slot = MigSlot(DeviceId("n10/3"), MigInstance("3g.40gb", 4), MilliGpu(500))
    jobs = (
        job("whole", task("n2", 0, 1), started_at=Instant(1_000), time_limit=Duration(60_000)),
        job("part", task("n10", 1, share=MilliGpu(250))),
        job("other-part", task("n10", 1, share=MilliGpu(500))),
        job("instance", TaskPlacement("worker", 0, NodeName("n10"), mig=slot)),
        job("gone", task("n99", 0)),
    )
    snapshot = snapshot_of(Instant(0), (node("n10", "r10"), node("n2", "r2", cordoned=True)), jobs)
    made = map_of(snapshot, POLICY)
    assert (made.nodes, made.racks, made.rack_block) == (("n2", "n10"), ("r2", "r10"), (0, 0))
    names = list(made.jobs.name)
    whole = names.index("whole")
    assert unrolled(made.held) == [whole, whole, FREE, FREE, FREE, IN_PARTS, FREE, IN_PARTS]
    assert unrolled(made.state) == [1] * 4 + [0] * 4
    part, other, instance = (names.index(name) for name in ("part", "other-part", "instance"))
    first, second = sorted([(part, 250), (other, 500)])
    assert made.parts == (5, 0, first[1], first[0], 5, first[1], second[1], second[0], 7, 500, 500, instance)
    assert (made.jobs.since[whole], made.jobs.until[whole]) == ("1970-01-01T00:00:01Z", "1970-01-01T00:01:01Z")
    assert made.parents == (-1, 0, 0)


def test_what_is_kept_and_what_leaves_is_marked() -> None:
    hour = Instant(3_600_000)
    promise = Intent("nominate", JobName("waits"), 1, Instant(0), hour, (task("n1", 0),))
    stop = Intent("stop", JobName("leaves"), 1, Instant(0), hour, purpose="evict")
    reserved = Reservation(JobName("gang"), (task("n1", 0, 2),), hour)
    in_flight = InFlight(intents=(promise, stop), reservations=(reserved,))
    jobs = (job("leaves", task("n1", 0)), job("stays", task("n1", 1)))
    made = map_of(snapshot_of(Instant(0), (node("n1", "r1"),), jobs, in_flight), POLICY)
    assert unrolled(made.kept) == [2, 0, 1, 0]
    assert [made.jobs.name[number] for number in made.jobs.leaving] == ["leaves"]


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
