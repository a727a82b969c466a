"""A busy cluster of 4,000 GPUs, the same from the same seed: `python -m hack.busy_cluster` writes the example snapshot anew.

Its policy and inventory are the repository in `hack/busy`. Guarantees that their owners do not use are lent, nearly nothing is
free, and a third of the jobs wait.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import click
import msgspec

from reconciler.documents.files import read_folder
from reconciler.documents.repository import Compiled, read_repository
from solver.model.cluster import DeviceId, Gpu, GpuType, MigInstance, Node
from solver.model.document import encode
from solver.model.inflight import DurationQuantile, InFlight
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import (
    Checkpoint,
    Job,
    JobName,
    JobSpec,
    MigSlot,
    QueueName,
    TaskGroup,
    TaskPlacement,
    TopologyRequest,
)

SEED = 4000
NOW = Instant.parse("2026-11-20T09:00:00Z")
HOUR_MS = 3_600_000
REPOSITORY = Path(__file__).parent / "busy"
EXAMPLE = Path(__file__).parents[1] / "cluster-state" / "examples" / "busy-4000.json.gz"
GPUS_PER_NODE = 8
H100, H200, A100, A100_40 = map(GpuType, ("H100-SXM5-80GB", "H200-SXM5-141GB", "A100-SXM4-80GB", "A100-SXM4-40GB"))
LIMITS_H = (4, 8, 12, 24, 24, 48, 72, 120)
USERS = (
    "ada",
    "ben",
    "chen",
    "dora",
    "emeka",
    "fatima",
    "goran",
    "hana",
    "ines",
    "jun",
    "kofi",
    "lena",
    "mika",
    "noor",
)
MIG_LAYOUTS = (
    tuple(MigInstance("1g.5gb", start) for start in range(7)),
    (MigInstance("2g.10gb", 0), MigInstance("1g.5gb", 2), MigInstance("1g.5gb", 3), MigInstance("3g.20gb", 4)),
)
MIG_COST = {"1g.5gb": MilliGpu(125), "2g.10gb": MilliGpu(250), "3g.20gb": MilliGpu(500)}
MIG_GPUS = 160


class Team(NamedTuple):
    """What one queue has on one GPU type: GPUs that its jobs hold, jobs that wait, and of which sizes both are."""

    queue: str
    gpu_type: GpuType
    holds: int
    waits: int
    sizes: tuple[int, ...]
    priority_class: str = "training"


TEAMS = (
    Team("research-language", H100, 704, 8, (32, 64, 64, 128)),
    Team("research-vision", H100, 464, 45, (8, 8, 16, 32, 64)),
    Team("research-robotics", H100, 168, 20, (1, 4, 8, 16)),
    Team("research-science", H100, 88, 35, (1, 1, 2, 4), "batch"),
    Team("product-inference", H100, 224, 4, (1, 2, 2, 4, 8), "inference"),
    Team("product-ranking", H100, 128, 15, (4, 8, 16, 32)),
    Team("product-search", H100, 24, 0, (4, 8)),
    Team("platform-evaluation", H100, 112, 20, (1, 2, 8), "batch"),
    Team("research-language", H200, 352, 6, (16, 32, 64)),
    Team("research-science", H200, 72, 10, (1, 2, 8), "batch"),
    Team("product-search", H200, 40, 3, (8,)),
    Team("research-vision", A100, 280, 30, (4, 8, 16, 32)),
    Team("research-language", A100, 64, 4, (16, 32)),
    Team("research-robotics", A100, 216, 25, (1, 2, 4, 8)),
    Team("research-science", A100, 200, 45, (1, 1, 2, 4), "batch"),
    Team("product-inference", A100, 128, 2, (1, 1, 2, 4), "inference"),
    Team("product-ranking", A100, 160, 12, (4, 8, 16)),
    Team("product-search", A100, 72, 0, (2, 4, 8)),
    Team("platform-evaluation", A100, 72, 10, (1, 2), "batch"),
    Team("research-science", A100_40, 130, 20, (1, 1, 2, 4), "batch"),
    Team("platform-evaluation", A100_40, 50, 6, (1, 2), "batch"),
)
MIG_TEAMS = (("product-inference", "1g.5gb", 10), ("product-search", "1g.5gb", 4), ("product-inference", "3g.20gb", 4))
"""Queue, profile, and about how many instances one of its jobs has."""


@dataclass(slots=True)
class Floor:
    """The free GPUs of every node of each type while jobs are put there. Gangs take whole nodes, others what fits."""

    free: dict[GpuType, list[tuple[Node, list[Gpu]]]] = field(default_factory=dict)

    def add(self, node: Node) -> None:
        """A node of which all GPUs that are not partitioned are free."""
        whole = [gpu for gpu in node.gpus if gpu.instances is None]
        self.free.setdefault(node.gpu_type, []).append((node, whole))

    def take(self, gpu_type: GpuType, tasks: int, gpus: int) -> tuple[TaskPlacement, ...] | None:
        """Places for that many tasks on the first nodes that have them; None: there are not as many."""
        found: list[TaskPlacement] = []
        for node, whole in self.free[gpu_type]:
            while len(whole) >= gpus and len(found) < tasks:
                devices = tuple(gpu.id for gpu in whole[:gpus])
                found.append(TaskPlacement("worker", len(found), node.name, devices))
                del whole[:gpus]
        if len(found) == tasks:
            return tuple(found)
        taken = {device for task in found for device in task.devices}
        for node, whole in self.free[gpu_type]:
            whole[:0] = [gpu for gpu in node.gpus if gpu.id in taken]
        return None


def busy_repository() -> Compiled:
    """The policy and the inventory of the example."""
    return read_repository(read_folder(REPOSITORY)).checked()


def busy_snapshot(seed: int = SEED) -> Snapshot:
    """The cluster on a Friday morning."""
    chance = random.Random(seed)
    nodes = _partitioned(busy_repository().nodes)
    floor = Floor()
    for node in nodes:
        floor.add(node)
    jobs = [job for team in TEAMS for job in _running(team, floor, chance)]
    jobs += _on_instances(nodes, chance)
    jobs += [_waiting(team, number, chance) for team in TEAMS for number in range(team.waits)]
    return snapshot_of(NOW, _some_broken(nodes), jobs, InFlight(durations=tuple(_durations())))


def _partitioned(nodes: tuple[Node, ...]) -> list[Node]:
    """The nodes, the first GPUs of the small ones cut into instances by turns."""
    left, made = MIG_GPUS, []
    for node in nodes:
        cut = min(left, len(node.gpus)) if node.gpu_type == A100_40 else 0
        left -= cut
        gpus = tuple(
            msgspec.structs.replace(gpu, instances=MIG_LAYOUTS[gpu.index % 4 == 3] if gpu.index < cut else None)
            for gpu in node.gpus
        )
        made.append(msgspec.structs.replace(node, gpus=gpus))
    return made


def _some_broken(nodes: list[Node]) -> list[Node]:
    """The nodes, the last of the largest pool on its way to be repaired."""
    last = max(node.name for node in nodes if node.gpu_type == H100)
    return [msgspec.structs.replace(node, cordoned=node.name == last) for node in nodes]


def _running(team: Team, floor: Floor, chance: random.Random) -> Iterator[Job]:
    left, number = team.holds, 0
    while left > 0:
        size = min(left, chance.choice(team.sizes))
        tasks, gpus = _tasks(size)
        placed = floor.take(team.gpu_type, tasks, gpus)
        if placed is None:
            return
        spec = _spec(team, tasks, gpus, chance)
        yield _started(JobName(f"{_kind(team)}-{team.queue}-{_short(team)}-{number:03}"), spec, placed, chance)
        left -= tasks * gpus
        number += 1


def _waiting(team: Team, number: int, chance: random.Random) -> Job:
    tasks, gpus = _tasks(chance.choice(team.sizes))
    since = Instant(NOW - chance.randint(1, 8 * 3600) * 1000)
    name = JobName(f"next-{team.queue}-{_short(team)}-{number:03}")
    return Job(name, since, _spec(team, tasks, gpus, chance), chance.choice(USERS))


def _tasks(size: int) -> tuple[int, int]:
    """Gangs have one task on each node, with all its GPUs; what is smaller is one task."""
    return (size // GPUS_PER_NODE, GPUS_PER_NODE) if size > GPUS_PER_NODE else (1, size)


def _spec(team: Team, tasks: int, gpus: int, chance: random.Random) -> JobSpec:
    service = team.priority_class == "inference"
    elastic = not service and tasks > 1 and chance.random() < 0.25
    shape = Shape(gpus=gpus, gpu_types=(team.gpu_type,), cpu=Cpu(gpus * 6000), memory=Memory(gpus * (48 << 30)))
    least = max(1, tasks // 2) if elastic else None
    limit = None if service or chance.random() < 0.08 else Duration(chance.choice(LIMITS_H) * HOUR_MS)
    saves = Checkpoint(Duration(HOUR_MS // 2), Duration(2 * 60_000)) if tasks > 1 or chance.random() < 0.5 else None
    near = TopologyRequest(required="block") if 1 < tasks <= 16 and chance.random() < 0.3 else TopologyRequest()
    return JobSpec(
        QueueName(team.queue),
        (TaskGroup("worker", tasks, shape, min_replicas=least),),
        team.priority_class,
        near,
        limit,
        saves,
        command=("python", "serve.py" if service else "train.py"),
        type="service" if service else "gang",
    )


def _started(name: JobName, spec: JobSpec, placed: tuple[TaskPlacement, ...], chance: random.Random) -> Job:
    """A job that runs, and has time left until its limit."""
    limit_s = (spec.time_limit or 48 * HOUR_MS) // 1000
    ago = chance.randint(1, limit_s - 60)
    since = Instant(NOW - ago * 1000)
    submitted = Instant(since - chance.randint(1, 4 * 3600) * 1000)
    limit = Duration(24 * HOUR_MS) if spec.priority_class == "batch" and spec.time_limit is None else spec.time_limit
    if limit is not None and ago * 1000 >= limit:
        since = Instant(NOW - limit // 2)
    user = chance.choice(USERS)
    return Job(name, submitted, spec, user, "running", 1, started_at=since, placement=placed, time_limit=limit)


def _on_instances(nodes: list[Node], chance: random.Random) -> Iterator[Job]:
    """Services on MIG instances; some instances stay free."""
    free: dict[str, list[tuple[Node, Gpu, MigInstance]]] = {}
    for node in nodes:
        for gpu in node.gpus:
            for instance in gpu.instances or ():
                free.setdefault(instance.profile, []).append((node, gpu, instance))
    number = 0
    for queue, profile, about in MIG_TEAMS * 20:
        replicas = chance.randint(about // 2, about + about // 2)
        taken, free[profile] = free[profile][:replicas], free[profile][replicas:]
        if taken and chance.random() < 0.9:
            name = JobName(f"serves-{queue}-{profile.replace('.', '-')}-{number:03}")
            yield _started(name, _small_model(queue, profile, len(taken)), tuple(_slots(taken)), chance)
            number += 1


def _small_model(queue: str, profile: str, replicas: int) -> JobSpec:
    shape = Shape(gpu_types=(A100_40,), mig=profile, cpu=Cpu(500), memory=Memory(4 << 30))
    group = TaskGroup("worker", replicas, shape)
    return JobSpec(QueueName(queue), (group,), "inference", command=("python", "serve.py"), type="service")


def _slots(taken: list[tuple[Node, Gpu, MigInstance]]) -> Iterator[TaskPlacement]:
    for index, (node, gpu, instance) in enumerate(taken):
        slot = MigSlot(gpu.id, instance, MIG_COST[instance.profile])
        yield TaskPlacement("worker", index, node.name, (DeviceId(instance.id_on(gpu.id)),), mig=slot)


def _kind(team: Team) -> str:
    return {"inference": "serves", "batch": "batch"}.get(team.priority_class, "trains")


def _short(team: Team) -> str:
    return team.gpu_type.partition("-")[0].lower() + ("s" if team.gpu_type == A100_40 else "")


def _durations() -> Iterator[DurationQuantile]:
    """What history says of the training of each queue; of research-robotics it has too little."""
    for hours, queue in enumerate(sorted({team.queue for team in TEAMS if team.queue != "research-robotics"}), 6):
        yield DurationQuantile(QueueName(queue), "training", 0.9, Duration(hours * 4 * HOUR_MS))


def written(snapshot: Snapshot) -> bytes:
    """The snapshot as the file holds it: compressed, and with no time of its own."""
    return gzip.compress(encode(snapshot), mtime=0)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=int, default=SEED, show_default=True)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), default=EXAMPLE, help="Where to; the example.")
def main(seed: int, out: Path) -> None:
    """Write the snapshot of a busy cluster."""
    out.write_bytes(written(busy_snapshot(seed)))


if __name__ == "__main__":
    main()
