"""A change makes of one map the next: the same GPUs in the hands of the same jobs."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from reconciler.web import map_change as module
from reconciler.web.cluster_map import ClusterMap, MapJobs, map_of
from reconciler.web.map_change import MapChange, map_change
from solver.model.inflight import InFlight, Intent, Reservation
from solver.model.quantities import Instant, MilliGpu
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName
from tests.reconciler.api.conftest import POLICY
from tests.reconciler.web.test_cluster_map import job, unrolled
from tests.reconciler.web.test_cluster_summary import node, task

HOUR = Instant(3_600_000)
NAMES = ("a", "b", "c", "d")
N1, N2 = node("n1", "r1"), node("n2", "r1")


def by_name(columns: ClusterMap) -> dict[str, Any]:
    """What a map says, without the numbers of jobs."""
    jobs, parts = columns.jobs, list(columns.parts)
    return {
        "time": columns.time,
        "state": unrolled(columns.state),
        "kept": unrolled(columns.kept),
        "held": [jobs.name[held] if held >= 0 else held for held in unrolled(columns.held)],
        "parts": sorted((*parts[at : at + 3], jobs.name[parts[at + 3]]) for at in range(0, len(parts), 4)),
        "jobs": lines(jobs),
    }


def lines(jobs: MapJobs) -> dict[str, tuple[object, ...]]:
    columns = zip(jobs.name, jobs.queue, jobs.priority_class, jobs.user, jobs.since, jobs.until, strict=True)
    return {name: (*line, number in jobs.leaving) for number, (name, *line) in enumerate(columns)}


def applied(known: dict[str, Any], change: MapChange) -> dict[str, Any]:
    """As a page does it."""
    names, changed = change.jobs.name, set(change.gpu)
    kept = [part for part in known["parts"] if part[0] not in changed]
    fresh = [(*change.parts[at : at + 3], names[change.parts[at + 3]]) for at in range(0, len(change.parts), 4)]
    result = {**known, "time": change.time, "parts": sorted(kept + fresh)}
    for column in ("state", "kept", "held"):
        result[column] = list(known[column])
    for at, gpu in enumerate(change.gpu):
        result["state"][gpu], result["kept"][gpu] = change.state[at], change.kept[at]
        result["held"][gpu] = names[change.held[at]] if change.held[at] >= 0 else change.held[at]
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
    reserved = [Reservation(JobName("gang"), (task("n2", 3),), HOUR)] if draw(st.booleans()) else []
    nodes = (node("n1", "r1"), node("n2", "r1", cordoned=draw(st.booleans())))
    in_flight = InFlight(intents=tuple(intents), reservations=tuple(reserved))
    time = Instant(draw(st.integers(0, 5)) * 1_000)
    return map_of(snapshot_of(time, nodes, tuple(jobs.values()), in_flight), POLICY)


@given(worlds(), worlds())
def test_what_changed_makes_the_next_map_of_the_one_before(before: ClusterMap, after: ClusterMap) -> None:
    change = map_change(before, after, ("b", "a"))
    if before.priority_classes != after.priority_classes:
        assert change is None
        return
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


def test_another_cluster_is_sent_whole() -> None:
    one, two = (map_of(snapshot_of(Instant(0), nodes, ()), POLICY) for nodes in ((N1,), (N1, N2)))
    assert map_change(one, two, ("b", "a")) is None
