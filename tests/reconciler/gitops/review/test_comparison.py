"""What a review finds: losses and for whom, limits that heal, starts that move, GPUs left over; the same from the same input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from reconciler.control.islands import with_reported_islands
from reconciler.documents.files import Files
from reconciler.documents.operations import Operations
from reconciler.documents.repository import Compiled, read_repository
from reconciler.gitops.review.comparison import review
from reconciler.gitops.review.side import ReviewSide, on_inventory
from reconciler.model.review_findings import Converging, Loss, RackUse, Review, Stranded
from solver.milp.highs import optimise
from solver.model.cluster import DeviceId, GpuType, MigInstance, NodeName
from solver.model.document import encode
from solver.model.quantities import Cpu, Duration, Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.policy.policy import Policy
from solver.simulation import projection as onward
from tests.reconciler.gitops.source.origin import Origin
from tests.solver.worlds import policies, snapshots

HOUR = 3_600_000
WHOLE = Shape(8)
NOW = Instant.parse("2026-11-20T12:00:00Z")
HEAD = "apiVersion: quorate.dev/v1\nkind: "
POOL = """NodePool
metadata: {name: n}
spec: {gpuType: H100, gpusPerNode: 8, cpu: 96, memory: 1Ti, nodes: {prefix: n, count: %d}}
"""
TOPOLOGY = """Topology
metadata: {name: n}
spec: {pool: n, shape: {nodesPerIsland: 1, islandsPerRack: 2, racksPerBlock: 1}}
"""
SETTINGS = """SchedulingPolicy
metadata: {name: default}
spec: {reclaim: guaranteed, convergence: {within: 4h, evict: preemptible}}
"""


def repository(nodes: int, **queues: str) -> dict[str, str]:
    """A repository of root queues, each by its spec."""
    files = {
        f"policies/{name}.yaml": f"{HEAD}Queue\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        for name, spec in queues.items()
    }
    return {**files, "policies/s.yaml": HEAD + SETTINGS, "cluster-state/n.yaml": HEAD + POOL % nodes}


def side(name: str, files: dict[str, str]) -> ReviewSide:
    read = read_repository(Files({path: text.encode() for path, text in files.items()}))
    return ReviewSide(name, name * 8, read.checked())


def job(name: str, queue: str, *, on: str = "", ago_h: int = 1, limit_h: int = 90, shape: Shape = WHOLE) -> Job:
    """A job of one task; `on` a node it runs, on all of its GPUs."""
    spec = JobSpec(QueueName(queue), (TaskGroup("worker", 1, shape),), time_limit=Duration(limit_h * HOUR))
    since = Instant(NOW - ago_h * HOUR)
    if not on:
        return Job(JobName(name), since, spec)
    placed = TaskPlacement("worker", 0, NodeName(on), tuple(DeviceId(f"{on}/{index}") for index in range(8)))
    limit = Duration(limit_h * HOUR)
    return Job(JobName(name), since, spec, "", "running", 1, started_at=since, placement=(placed,), time_limit=limit)


def lowered(*jobs: Job) -> Review:
    """Vision holds 24 GPUs; its max is lowered from 24 to 8."""
    before, after = (f"{{quota: [{{gpuType: H100, guaranteed: 8, max: {most}}}]}}" for most in (24, 8))
    base, head = (side(name, repository(3, vision=spec)) for name, spec in (("base", before), ("head", after)))
    return review(snapshot_of(NOW, base.compiled.nodes, jobs), base, head, optimise)


def test_a_lowered_quota_says_when_it_is_kept_again_and_who_loses_what_for_it() -> None:
    held = (job(f"old-{number}", "vision", on=f"n{number}", ago_h=number + 1, limit_h=90) for number in (1, 2, 3))
    found = lowered(*held)
    line = QueueName("vision"), GpuType("H100")
    deadline = Instant(NOW + 4 * HOUR)
    eight, sixteen = MilliGpu.gpus(8), MilliGpu.gpus(16)
    assert found.converging == (Converging(*line, eight, sixteen, "preemptible", deadline, deadline),)
    # The two that have run for 6 and 7 hours by then, and the 5 minutes of starting again.
    hours = {"old-2": 8 * (3 + 4 + 1 / 12), "old-1": 8 * (2 + 4 + 1 / 12)}
    losses = {str(known.job): known.loss for known in found.evicted_by_change if known.loss}
    assert {name: loss.lost_gpu_h for name, loss in losses.items()} == pytest.approx(hours)
    assert set(losses.values()) == {
        Loss(deadline, Duration(30_000), "converge", eight, loss.lost_gpu_h) for loss in losses.values()
    }
    assert [(known.job, known.before, known.after, known.changed) for known in found.jobs] == [
        ("old-1", "runs", "runs", True),
        ("old-2", "runs", "runs", True),
    ]
    assert found.has_changes


def test_every_rack_says_what_it_has_and_holds_and_which_jobs_hold_more_or_less_there() -> None:
    """Two racks of two nodes; the head has one node more, a queue more, and lets another job start."""
    topology = {"cluster-state/t.yaml": HEAD + TOPOLOGY}
    stays = {"stays": "{quota: [{gpuType: H100, guaranteed: 8}]}"}
    base = side("base", repository(4, vision="{quota: [{gpuType: H100, max: 8}]}", **stays) | topology)
    head = side("head", repository(5, vision="{quota: [{gpuType: H100, max: 16}]}", **stays) | topology)
    racks = [(node.block, node.rack) for node in head.compiled.nodes]
    assert (racks[0], racks[2]) == (racks[1], racks[3]) != (racks[4], racks[4])
    jobs = job("old", "vision", on="n1"), job("stays", "stays", on="n2"), job("waits", "vision")
    found = review(snapshot_of(NOW, base.compiled.nodes, jobs), base, head, None)
    (first, second, third), none = found.racks, MilliGpu(0)
    full, node = MilliGpu.gpus(16), MilliGpu.gpus(8)
    assert first == RackUse(*racks[0], full, full, full, full)
    assert not first.changed
    # The new job takes the place that fits best, in one of the two.
    taken, left = (second, third) if second.comes else (third, second)
    assert (taken.comes, taken.goes, taken.held_before, taken.held_after) == ((JobName("waits"),), (), none, node)
    assert (left.comes, left.held_after) == ((), none)
    assert (second.gpus_before, second.gpus_after, third.gpus_before, third.gpus_after) == (full, full, none, node)
    assert taken.changed
    assert third.changed
    back = review(snapshot_of(NOW, head.compiled.nodes, jobs), head, base, None)
    assert [(rack.comes, rack.goes) for rack in back.racks] == [(rack.goes, rack.comes) for rack in found.racks]


def test_who_ends_before_the_deadline_loses_nothing() -> None:
    ends = [
        job(f"ends-{number}", "vision", on=f"n{number}", ago_h=number, limit_h=number + number) for number in (1, 2)
    ]
    found = lowered(*ends, job("stays", "vision", on="n3"))
    assert (found.jobs, [known.kept_at for known in found.converging]) == ((), [NOW + 2 * HOUR])


def test_what_runs_where_the_head_has_no_queue_or_no_node_is_told() -> None:
    """Nobody is evicted for it, so it is among no losses."""
    quota = "{quota: [{gpuType: H100, guaranteed: 8}]}"
    base = side("base", repository(3, vision=quota, language=quota))
    head = side("head", repository(2, language=quota))
    jobs = (job("vision", "vision", on="n1"), job("language", "language", on="n3"), job("stays", "language", on="n2"))
    found = review(snapshot_of(NOW, base.compiled.nodes, jobs), base, head, None)
    eight = MilliGpu.gpus(8)
    assert found.stranded == (Stranded(JobName("language"), QueueName("language"), eight, (NodeName("n3"),)),)
    assert [(change.queue, change.before and change.before.used) for change in found.orphaned] == [("vision", eight)]
    assert not found.evicted_by_change
    back = review(snapshot_of(NOW, base.compiled.nodes, jobs), head, base, None)
    assert (back.stranded, back.orphaned) == ((), ())


RUNS_ON = "{quota: [{gpuType: H100, guaranteed: 8}]}"


@pytest.mark.parametrize(
    ("after", "why", "helps"),
    [
        (
            "{quota: [{gpuType: H100, guaranteed: 4, max: 4}]}",
            "needs 8 H100; queue vision may never hold more than 4 (policies/vision.yaml:4)",
            "Up to 4 H100 would fit in queue vision.",
        ),
        (
            "{quota: [{gpuType: H100, guaranteed: 8}], priorityClasses: [rare]}",
            "queue vision does not take jobs without a priority class, only rare (policies/vision.yaml:3)",
            "Queue vision takes the priority class rare.",
        ),
    ],
    ids=["max below its size", "class not allowed"],
)
def test_running_jobs_that_could_never_start_again_are_told(after: str, why: str, helps: str) -> None:
    rare = {"policies/rare.yaml": f"{HEAD}PriorityClass\nmetadata: {{name: rare}}\nspec: {{value: 1}}\n"}
    base = side("base", {**repository(2, vision=RUNS_ON, language=RUNS_ON), **rare})
    head = side("head", {**repository(2, vision=after, language=RUNS_ON), **rare})
    jobs = (job("held", "vision", on="n1"), job("stays", "language", on="n2"))
    snapshot = snapshot_of(NOW, base.compiled.nodes, jobs)
    (one,) = review(snapshot, base, head, None).unrestartable
    assert (one.job, one.queue, one.gpus, one.would_help) == ("held", "vision", MilliGpu.gpus(8), (helps,))
    assert one.reasons == (why,)
    assert not one.already
    (same,) = review(snapshot, head, head, None).unrestartable
    assert same.already
    assert review(snapshot, head, base, None).unrestartable == ()


def test_a_job_whose_gpu_type_is_gone_could_never_start_again() -> None:
    base, files = side("base", repository(2, vision=RUNS_ON)), repository(2, vision=RUNS_ON)
    files["cluster-state/n.yaml"] = files["cluster-state/n.yaml"].replace("H100", "A100")
    files["policies/vision.yaml"] = files["policies/vision.yaml"].replace("H100", "A100")
    picky = job("picky", "vision", on="n1", shape=Shape(8, gpu_types=(GpuType("H100"),)))
    found = review(snapshot_of(NOW, base.compiled.nodes, (picky,)), base, side("head", files), None)
    assert [(one.job, one.reasons) for one in found.unrestartable] == [
        ("picky", ("group worker accepts only H100; the cluster has A100",))
    ]


def test_a_job_whose_pool_is_closed_to_its_queue_could_never_start_again() -> None:
    base, files = (
        side("base", repository(1, vision=RUNS_ON)),
        repository(1, vision="{pools: [other], quota: [{gpuType: H100}]}"),
    )
    files["cluster-state/o.yaml"] = (
        f"{HEAD}NodePool\nmetadata: {{name: other}}\nspec: {{cpu: 4, memory: 8Gi, nodes: {{names: [o]}}}}\n"
    )
    held = job("held", "vision", on="n1")
    found = review(snapshot_of(NOW, base.compiled.nodes, (held,)), base, side("head", files), None)
    assert [(one.job, one.reasons[0].partition(" has ")[2]) for one in found.unrestartable] == [
        ("held", "0 on the 1 node that it may be on (pools other)")
    ]


def test_a_change_of_namespaces_tells_which_jobs_it_refuses_and_which_could_not_come_back() -> None:
    base = side("base", repository(3, vision=RUNS_ON, language=RUNS_ON))
    closed = "{access: {namespaces: [\n  {name: core}]}, quota: [{gpuType: H100, guaranteed: 8}]}"
    head = side("head", repository(3, vision=closed, language=RUNS_ON))
    jobs = [
        msgspec.structs.replace(job(name, "vision", on=on), namespace=namespace)
        for name, on, namespace in (("c-runs", "n1", "core"), ("l-runs", "n2", "lab"), ("l-waits", "", "lab"))
    ]
    found = review(snapshot_of(NOW, base.compiled.nodes, jobs), base, head, optimise)
    why = "queue vision is open to listed namespaces alone, and lab is not among them (policies/vision.yaml:5)"
    (waits,) = found.jobs
    assert (waits.job, waits.before, waits.after, waits.reasons) == ("l-waits", "starts", "inadmissible", (why,))
    assert waits.would_help == ("List lab in access.namespaces of queue vision.",)
    (runs,) = found.unrestartable
    assert (runs.job, runs.reasons, runs.already) == ("l-runs", (why,), False)
    assert found.evicted_by_change == ()
    (document,) = found.documents
    assert [(field.field, field.after, field.origin) for field in document.fields] == [
        ("access.namespaces[core]", "listed", "policies/vision.yaml:5")
    ]


def test_a_change_of_default_queues_and_local_names_tells_which_jobs_come_to_be_in_another_queue() -> None:
    def of(entries: str) -> str:
        return f"{{access: {{namespaces: [{entries}]}}, quota: [{{gpuType: H100, guaranteed: 8}}]}}"

    base = side(
        "base",
        repository(3, vision=of("{name: core, default: true, localQueues: [main]}"), language=of("{name: core}")),
    )
    head = side(
        "head",
        repository(3, vision=of("{name: core}"), language=of("{name: core, default: true, localQueues: [main]}")),
    )
    none = side("none", repository(3, vision=of("{name: core}"), language=of("{name: core}")))
    jobs = [
        msgspec.structs.replace(job(name, "vision", on=on), namespace="core", queue_called=called)
        for name, on, called in (("named", "n1", None), ("runs", "n2", ""), ("waits", "", "main"))
    ]
    snapshot = snapshot_of(NOW, base.compiled.nodes, jobs)
    assert review(snapshot, base, base, optimise).requeued == ()
    found = review(snapshot, base, head, optimise)
    assert [(one.job, one.called, one.before, one.after) for one in found.requeued] == [
        ("runs", "", "vision", "language"),
        ("waits", "main", "vision", "language"),
    ]
    used = {change.queue: change.after.used for change in found.queues if change.after and change.before}
    assert used == {"vision": MilliGpu.gpus(8), "language": MilliGpu.gpus(16)}, "each counts where it is by then"
    assert found.has_changes
    gone = review(snapshot, base, none, optimise)
    assert [(one.job, one.after) for one in gone.requeued] == [("runs", None), ("waits", "main")]
    (waits,) = gone.jobs
    assert (waits.job, waits.after) == ("waits", "inadmissible")
    assert [one.job for one in gone.unrestartable] == ["runs"]


def test_jobs_that_wait_under_the_head_say_what_would_help() -> None:
    side_of = side("base", repository(1, vision=RUNS_ON))
    jobs = (job("held", "vision", on="n1"), job("waits", "vision"))
    found = review(snapshot_of(NOW, side_of.compiled.nodes, jobs), side_of, side_of, None)
    assert [(known.job, known.would_help) for known in found.jobs] == [("waits", ("8 H100 more free",))]


def raised() -> tuple[Snapshot, dict[str, str], dict[str, str]]:
    """Both queues run a job and wait with one; language comes first, but for its max."""
    specs = (f"{{weight: 100, quota: [{{gpuType: H100, guaranteed: 0, max: {most}}}]}}" for most in (8, 16))
    before, after = (repository(2, language=spec, vision="{quota: [{gpuType: H100, guaranteed: 0}]}") for spec in specs)
    jobs = [
        job("v-runs", "vision", on="n1", ago_h=1, limit_h=3),
        job("l-runs", "language", on="n2", ago_h=1, limit_h=7),
        job("v-next", "vision", limit_h=10),
        job("l-next", "language", limit_h=10),
    ]
    return snapshot_of(NOW, side("base", before).compiled.nodes, jobs), before, after


def test_a_raised_quota_lets_a_job_start_earlier_and_another_queue_wait_longer() -> None:
    snapshot, before, after = raised()
    found = review(snapshot, side("base", before), side("head", after), optimise)
    jobs = {str(known.job): known for known in found.jobs}
    assert {name: known.delay_ms for name, known in jobs.items()} == {"l-next": -4 * HOUR, "v-next": 4 * HOUR}
    assert jobs["l-next"].starts_after == NOW + 2 * HOUR
    assert [(known.queue, known.p50_before_s, known.p50_after_s, known.p90_after_s) for known in found.waits] == [
        ("language", 6 * 3600.0, 2 * 3600.0, 2 * 3600.0),
        ("vision", 2 * 3600.0, 6 * 3600.0, 6 * 3600.0),
    ]
    (changed,) = (known for known in found.queues if known.queue == "language")
    assert changed.before is not None
    assert changed.after is not None
    assert (changed.before.max, changed.after.max, changed.after.used) == tuple(map(MilliGpu.gpus, (8, 16, 8)))
    (document,) = found.documents
    assert (document.origin, document.fields[0].origin) == ("policies/language.yaml:3", "policies/language.yaml:4")
    assert (found.evicted_by_change, found.converging, found.ahead.complete) == ((), (), True)


def test_gpus_that_are_partitioned_otherwise_and_what_is_left_free() -> None:
    before = repository(1, vision="{}")
    before["cluster-state/n.yaml"] = before["cluster-state/n.yaml"].replace("gpuType: H100", "gpuType: H100-SXM5-80GB")
    mig = HEAD + "MigGeometry\nmetadata: {name: parts}\nspec: {pool: n, mode: free}\n"
    base, head = side("base", before), side("head", {**before, "policies/m.yaml": mig})
    snapshot = snapshot_of(NOW, base.compiled.nodes, [job("part", "vision", shape=Shape(mig="7g.80gb"))])
    found = review(snapshot, base, head, optimise)
    assert [(known.before, known.after) for known in found.jobs] == [("inadmissible", "starts")]
    (gpu,) = found.repartitioned
    assert (gpu.node, gpu.before, gpu.after) == ("n1", None, (MigInstance("7g.80gb", 0),))
    (free,) = found.fragments
    assert (free.free_before, free.free_after) == (MilliGpu.gpus(8), MilliGpu.gpus(7))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(snapshots(elastic=True, held_one_in=1), policies())
def test_a_change_of_nothing_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot, policy: Policy
) -> None:
    monkeypatch.setattr(onward, "ROUNDS_MAX", 10)
    same = ReviewSide("main", "c0ffee", Compiled(policy, snapshot.nodes, Operations()))
    found = review(snapshot, same, same, None)
    assert not found.has_changes
    assert (found.documents, found.queues, found.fragments, found.repartitioned) == ((), (), (), ())
    assert all(known.starts_before == known.starts_after for known in found.jobs)
    assert found.evicted_by_change == ()
    assert all(
        (waits.p50_before_s, waits.p90_before_s) == (waits.p50_after_s, waits.p90_after_s) for waits in found.waits
    )


def test_the_same_review_from_whatever_order_and_hash_seed(tmp_path: Path) -> None:
    snapshot, before, after = raised()
    origin = Origin(tmp_path / "policy")
    origin.commit(before)
    origin.git("switch", "--quiet", "--create", "head")
    origin.commit(after)
    shuffled = json.loads(encode(snapshot))
    for part in ("nodes", "jobs"):
        shuffled[part].reverse()
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(shuffled))
    command = ["-m", "reconciler.cli.main", "plan", "--repo", str(origin.folder), "--snapshot", str(file), "-o", "json"]
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    ran = subprocess.run([sys.executable, *command], env=environment, capture_output=True, check=True)
    base = side("main", before)._replace(commit=origin.git("rev-parse", "main"))
    head = side("HEAD", after)._replace(commit=origin.git("rev-parse", "head"))
    assert ran.stdout == encode(review(snapshot, base, head, optimise)) + b"\n"


def test_islands_that_nodes_tell_stay_and_those_that_a_change_takes_away_go() -> None:
    bare = side("bare", repository(2, team="{}")).compiled.nodes
    declared = side("shaped", {**repository(2, team="{}"), "cluster-state/t.yaml": HEAD + TOPOLOGY}).compiled.nodes
    told = snapshot_of(NOW, with_reported_islands(bare, {NodeName("n1"): "c", NodeName("n2"): "c"}), ())
    assert [node.island for node in on_inventory(told, bare, bare).nodes] == ["c", "c"]
    assert [node.island for node in on_inventory(told, declared, bare).nodes] == ["island-0001", "island-0002"]
    seen = snapshot_of(NOW, declared, ())
    assert [node.island for node in on_inventory(seen, bare, declared).nodes] == ["", ""]


def test_a_cluster_with_nodes_of_its_own_has_these_whatever_is_declared() -> None:
    """As on Kubernetes: n1 is declared and there, n2 declared alone, x there alone."""
    base, head = (
        side("base", repository(2, team="{}")).compiled.nodes,
        side("head", repository(3, team="{}")).compiled.nodes,
    )
    n1, other = base[0], msgspec.structs.replace(base[1], name=NodeName("x"), gpus=())
    seen = snapshot_of(NOW, (n1, other), (), inventory="reported")
    assert on_inventory(seen, head, base).nodes == (n1, other)
    renamed = tuple(msgspec.structs.replace(node, pool="fast", cordoned=True, cpu=Cpu(1_000)) for node in head)
    first, second = on_inventory(seen, renamed, base).nodes
    assert (first.pool, first.cordoned, first.cpu, second) == ("fast", True, 1_000, other)
    assert first.gpus == n1.gpus
    back = on_inventory(snapshot_of(NOW, (first, other), (), inventory="reported"), base, renamed)
    assert back.nodes == (n1, other)
    assert back.inventory == "reported"
    little = snapshot_of(NOW, (msgspec.structs.replace(first, cpu=Cpu(500)),), (), inventory="reported")
    assert on_inventory(little, base, renamed).nodes[0].cpu == 500
    gone = on_inventory(snapshot_of(NOW, (first,), (), inventory="reported"), (), renamed).nodes
    assert [(node.pool, node.cordoned) for node in gone] == [("fast", False)]


def test_guarantees_are_held_against_the_gpus_that_are_there() -> None:
    """Declared are 16; there are 24. Without declared nodes as well."""
    before, after, beyond = (f"{{quota: [{{gpuType: H100, guaranteed: {count}}}]}}" for count in (8, 24, 25))
    there = side("there", repository(3, vision=before)).compiled.nodes
    seen = snapshot_of(NOW, there, (), inventory="reported")

    def broken(nodes: int, guaranteed: str) -> list[str]:
        base, head = (
            side(name, repository(nodes, vision=spec)) for name, spec in (("base", before), ("head", guaranteed))
        )
        return [breach.message for breach in review(seen, base, head, None).breaches]

    assert broken(2, after) == []
    assert broken(2, beyond) == ["1 more H100 would be guaranteed than are there"]
