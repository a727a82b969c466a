"""A change makes of one map the next: the same GPUs in the hands of the same jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from reconciler.web import map_change as module
from reconciler.web.cluster_map import PART, ClusterMap, MapJobs, map_of
from reconciler.web.map_change import MapChange, map_change
from solver.model.cluster import MigInstance, NodeName
from solver.model.document import encode
from solver.model.inflight import InFlight, Intent, Reservation
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName
from tests.reconciler.api.conftest import POLICY
from tests.reconciler.web.test_cluster_map import job, unrolled
from tests.reconciler.web.test_cluster_summary import node, task

HOUR = Instant(3_600_000)
NAMES = ("a", "b", "c", "d")
PLAIN = ("state", "kept", "leaves")
NUMBERED = ("keeper", "held")
"""Columns of numbers of jobs."""
N1, N2 = node("n1", "r1"), node("n2", "r1")


def by_name(columns: ClusterMap) -> dict[str, Any]:
    """What a map says, without the numbers of jobs."""
    names = columns.jobs.name
    return {
        "time": columns.time,
        **{column: unrolled(getattr(columns, column)) for column in PLAIN},
        **{column: named(unrolled(getattr(columns, column)), names) for column in NUMBERED},
        "parts": part_list(columns.parts, names),
        "jobs": lines(columns.jobs),
    }


def named(numbers: Iterable[int], names: Sequence[str]) -> list[str | int]:
    return [names[number] if number >= 0 else number for number in numbers]


def part_list(flat: Sequence[int], names: Sequence[str]) -> list[tuple[object, ...]]:
    parts = (flat[at : at + PART] for at in range(0, len(flat), PART))
    return sorted((*part[:3], names[part[3]] if part[3] >= 0 else "", *part[4:]) for part in parts)


def lines(jobs: MapJobs) -> dict[str, tuple[object, ...]]:
    columns = zip(
        jobs.name, jobs.queue, jobs.priority_class, jobs.user, jobs.since, jobs.until, jobs.place, strict=True
    )
    return {name: (*line, number in jobs.waits) for number, (name, *line) in enumerate(columns)}


def applied(known: dict[str, Any], change: MapChange) -> dict[str, Any]:
    """As a page does it."""
    names, changed = change.jobs.name, set(change.gpu)
    kept = [part for part in known["parts"] if part[0] not in changed]
    result = {**known, "time": change.time, "parts": sorted(kept + part_list(change.parts, names))}
    for column in (*PLAIN, *NUMBERED):
        values = getattr(change, column)
        result[column] = list(known[column])
        for gpu, value in zip(change.gpu, named(values, names) if column in NUMBERED else values, strict=True):
            result[column][gpu] = value
    result["jobs"] = {name: line for name, line in known["jobs"].items() if name not in change.gone} | lines(
        change.jobs
    )
    return result


@st.composite
def worlds(draw: st.DrawFn) -> ClusterMap:
    """Two nodes of four GPUs: some held whole, some in parts, some kept, some closed."""
    whole = draw(st.lists(st.sampled_from(("", *NAMES)), min_size=4, max_size=4))
    parts = draw(st.lists(st.sampled_from(("", *NAMES)), min_size=2, max_size=2))
    jobs = dict[str, Job]()
    for at, name in enumerate(whole):
        if name:
            before = jobs[name].placement if name in jobs else ()
            jobs[name] = job(name, *before, task("n1", at))
    for name in parts:
        if name and name not in whole:
            before = jobs[name].placement if name in jobs else ()
            jobs[name] = job(name, *before, task("n2", 1, share=MilliGpu(250)))
    since = draw(st.sampled_from((None, Instant(1_000))))
    jobs = {name: msgspec.structs.replace(each, started_at=since) for name, each in jobs.items()}
    stop = draw(st.sampled_from(("", *jobs)))
    intents = [Intent("stop", JobName(stop), 1, Instant(0), HOUR, purpose="evict")] if stop else []
    for keeper in draw(st.sets(st.sampled_from(("e", "f")))):
        intents.append(Intent("nominate", JobName(keeper), 1, Instant(0), HOUR, (task("n2", 3),)))
        jobs[keeper] = msgspec.structs.replace(job(keeper), phase="pending")
    start = Instant(draw(st.integers(0, 2)) * 1_000)
    reserved = [Reservation(JobName("gang"), (task("n2", 2, 3),), start)] if draw(st.booleans()) else []
    last = node("n2", "r1", cordoned=draw(st.booleans()))
    cut = draw(st.sampled_from((None, (), (MigInstance("1g.10gb", 0),), (MigInstance("3g.40gb", 4),))))
    gpus = (msgspec.structs.replace(last.gpus[0], instances=cut), *last.gpus[1:])
    nodes = (node("n1", "r1"), msgspec.structs.replace(last, gpus=gpus))
    in_flight = InFlight(intents=tuple(intents), reservations=tuple(reserved))
    time = Instant(draw(st.integers(0, 5)) * 1_000)
    suspects = {(NodeName("n1"), "n1/0")} if draw(st.booleans()) else set[tuple[NodeName, str]]()
    return map_of(snapshot_of(time, nodes, tuple(jobs.values()), in_flight), POLICY, suspects)


@given(worlds(), worlds())
def test_what_changed_makes_the_next_map_of_the_one_before(before: ClusterMap, after: ClusterMap) -> None:
    change = map_change(before, after, ("b", "a"))
    assert change is not None
    assert applied(by_name(before), change) == by_name(after)
    if by_name(before) == by_name(after):
        assert (change.gpu, change.jobs.name, change.gone) == ((), (), ())


def test_only_what_changed_is_told(monkeypatch: Any) -> None:
    nodes = tuple(node(f"n{number}", "r1") for number in range(50))
    running = tuple(job(f"j{number:02d}", task(f"n{number}", 0, 1)) for number in range(50))
    before = map_of(snapshot_of(Instant(0), nodes, running), POLICY)
    new = (*running[:7], *running[8:], job("a-new-one", task("n7", 3)))
    after = map_of(snapshot_of(Instant(0), nodes, new), POLICY)
    change = map_change(before, after, ("b", "a"))
    assert change is not None
    assert (change.gpu, change.gone, change.jobs.name) == ((28, 29, 31), ("j07",), ("a-new-one",))
    monkeypatch.setattr(module, "GPUS_MAX", 2)
    assert map_change(before, after, ("b", "a")) is None


def test_a_start_on_eight_gpus_is_a_short_message_however_large_the_cluster_is() -> None:
    nodes = tuple(node(f"n{number}", f"r{number // 32}") for number in range(1_000))
    running = tuple(job(f"j{number:03d}", task(f"n{number}", 0, 1, 2, 3)) for number in range(900))
    waits = msgspec.structs.replace(job("new"), phase="pending")
    starts = job("new", task("n998", 0, 1, 2, 3), task("n999", 0, 1, 2, 3), started_at=Instant(1_000))
    before, after = (
        map_of(snapshot_of(Instant(at), nodes, (*running, each)), POLICY) for at, each in ((0, waits), (1_000, starts))
    )
    change = map_change(before, after, ('"0123456789abcdef0123"', '"0123456789abcdef0124"'))
    assert change is not None
    assert (len(change.gpu), change.jobs.name) == (8, ("new",))
    assert len(encode(change)) < 700 < len(encode(after)) // 40


def test_another_cluster_is_sent_whole() -> None:
    one, two = (map_of(snapshot_of(Instant(0), nodes, ()), POLICY) for nodes in ((N1,), (N1, N2)))
    assert map_change(one, two, ("b", "a")) is None
