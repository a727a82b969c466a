"""The cluster of the benchmark: a pool that is full, a pool with room for what arrives, jobs that run and jobs that wait.

`full` has one part held inside guarantees, where jobs wait for ever, and one that is borrowed from the queue `urgent`. `roomy`
belongs to the queue `fresh`.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.documents.files import read_folder
from reconciler.documents.repository import read_repository
from reconciler.model.clock import SystemClock
from reconciler.model.job_groups import Batch, NewGroup, NewJob
from reconciler.model.job_record import ArrayElement
from reconciler.protocols.ledger import Claim
from reconciler.server.store_access import SOLE_HOLDER
from reconciler.store.store import SqlStore
from solver.model.cluster import GpuType, Node
from solver.model.inflight import Intent
from solver.model.quantities import Duration, Instant
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement

GPUS_PER_NODE: Final = 8
FULL: Final = GpuType("H100")
ROOMY: Final = GpuType("A100")
TEAMS: Final = 8
FRESH: Final = QueueName("fresh")
URGENT: Final = QueueName("urgent")
LENT: Final = QueueName("lent")
WAITING: Final = "w-"
"""Begins the names of what waits from the beginning."""
FOREVER: Final = ("sleep", "forever")
SIZES: Final = (1, 2, 4, 8, 8, 16, 32, 64)
"""GPUs of what waits."""

_AT_ONCE: Final = 500
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the world is. What lives and does not wait, runs."""

    gpus: int
    live_jobs: int
    waiting: int
    seed: int = 1

    @property
    def full_nodes(self) -> int:
        """Nine of ten nodes."""
        return max(TEAMS + 2, self.gpus // GPUS_PER_NODE * 9 // 10)

    @property
    def roomy_nodes(self) -> int:
        """The others."""
        return max(1, self.gpus // GPUS_PER_NODE - self.full_nodes)

    @property
    def running(self) -> int:
        """Jobs that hold the full pool."""
        return self.live_jobs - self.waiting

    @property
    def lent_nodes(self) -> int:
        """A tenth of the full pool is lent."""
        return max(1, self.full_nodes // 10)


def make_policy(folder: Path, sizes: Sizes) -> Path:
    """A repository of the cluster: guarantees of the full pool add up to it."""
    guaranteed = {f"team-{number}": (FULL, nodes) for number, nodes in enumerate(team_nodes(sizes))}
    guaranteed |= {URGENT: (FULL, sizes.lent_nodes), LENT: (FULL, 0), FRESH: (ROOMY, sizes.roomy_nodes)}
    documents = {
        **{f"policies/{name}.yaml": _queue(name, *of) for name, of in guaranteed.items()},
        "policies/scheduling.yaml": (
            "apiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {name: training}\nspec: {value: 100}\n---\n"
            "apiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {name: inference}\n"
            "spec: {value: 1000, sloClass: latency-critical}\n---\n"
            "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: default}\n"
            "spec: {defaultPriorityClass: training, reclaim: guaranteed, evictions: {grace: 1s}}\n"
        ),
        "cluster-state/pools.yaml": "---\n".join(
            (_pool("full", FULL, sizes.full_nodes), _pool("roomy", ROOMY, sizes.roomy_nodes))
        ),
    }
    for name, content in documents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "The cluster"]):
        subprocess.run(["git", *identity, *command], cwd=folder, check=True)
    return folder


def fill(store: SqlStore, policy: Path, sizes: Sizes) -> None:
    """Write what runs and what waits as if rounds had decided it hours ago: deciding it would be another benchmark."""
    chance, now = random.Random(sizes.seed), SystemClock().now()
    nodes = [node for node in read_repository(read_folder(policy)).checked().nodes if node.gpu_type == FULL]
    epoch = store.ledger.lead(SOLE_HOLDER, now, Duration(60_000))
    running = list(_running(nodes, sizes))
    for first in range(0, len(running), _AT_ONCE):
        some = running[first : first + _AT_ONCE]
        _submit(store, f"r-{first // _AT_ONCE:03}", [spec for spec, _ in some], Instant(now - 9 * _HOUR_MS))
        wanted = []
        for index, (_, tasks) in enumerate(some):
            job, since = JobName(f"r-{first // _AT_ONCE:03}-{index}"), Instant(now - chance.randint(1, 8 * _HOUR_MS))
            wanted.append((Claim(job, 1, tasks, since), Intent("start", job, 1, since, since, tasks)))
        refused = store.ledger.claim_all(epoch, wanted)
        if refused:
            raise RuntimeError(f"the world can't be filled: {next(iter(refused.values()))}")
        store.ledger.confirm_running_all(epoch, [(claim.job, 1, claim.since) for claim, _ in wanted])
    waiting = [waiting_spec(chance) for _ in range(sizes.waiting)]
    for first in range(0, len(waiting), _AT_ONCE):
        at = Instant(now - chance.randint(1, 8 * _HOUR_MS))
        _submit(store, f"{WAITING}{first // _AT_ONCE:03}", waiting[first : first + _AT_ONCE], at)
    store.ledger.resign(epoch)


def waiting_spec(chance: random.Random) -> JobSpec:
    """A job that finds no room: its team holds what is guaranteed to it, and nothing is idle."""
    return spec_of(QueueName(f"team-{chance.randrange(TEAMS)}"), FULL, chance.choice(SIZES))


def spec_of(queue: QueueName, gpu_type: GpuType, gpus: int, priority_class: str = "training") -> JobSpec:
    """Gangs have one task on each node, with all its GPUs; what is smaller is one task."""
    tasks, each = (gpus // GPUS_PER_NODE, GPUS_PER_NODE) if gpus > GPUS_PER_NODE else (1, gpus)
    shape = Shape(gpus=each, gpu_types=(gpu_type,))
    return JobSpec(queue, (TaskGroup("worker", tasks, shape),), priority_class, command=FOREVER)


def _running(nodes: list[Node], sizes: Sizes) -> Iterator[tuple[JobSpec, tuple[TaskPlacement, ...]]]:
    """Jobs that hold every GPU of the pool: the lent part first, then each team's own nodes."""
    of_lent = max(1, sizes.running * sizes.lent_nodes // sizes.full_nodes)
    yield from _holding(LENT, nodes[: sizes.lent_nodes], of_lent)
    start = sizes.lent_nodes
    for number, (share, jobs) in enumerate(zip(team_nodes(sizes), shares(sizes.running - of_lent, TEAMS), strict=True)):
        yield from _holding(QueueName(f"team-{number}"), nodes[start : start + share], max(1, jobs))
        start += share


def _holding(queue: QueueName, nodes: list[Node], jobs: int) -> Iterator[tuple[JobSpec, tuple[TaskPlacement, ...]]]:
    """Gangs of whole nodes where there are fewer jobs than nodes, else parts of nodes."""
    start = 0
    for share in shares(len(nodes), jobs) if jobs <= len(nodes) else ():
        own, start = nodes[start : start + share], start + share
        yield (
            spec_of(queue, FULL, share * GPUS_PER_NODE),
            tuple(
                TaskPlacement("worker", index, node.name, tuple(gpu.id for gpu in node.gpus))
                for index, node in enumerate(own)
            ),
        )
    for node, count in zip(nodes, shares(jobs, len(nodes)), strict=True) if jobs > len(nodes) else ():
        for part in range(min(count, GPUS_PER_NODE)):
            devices = tuple(gpu.id for gpu in node.gpus[part::count])
            yield spec_of(queue, FULL, len(devices)), (TaskPlacement("worker", 0, node.name, devices),)


def shares(of: int, parts: int) -> list[int]:
    """A number in parts that are as equal as may be."""
    return [of // parts + (number < of % parts) for number in range(parts)]


def team_nodes(sizes: Sizes) -> list[int]:
    """How many nodes each team holds, and has guaranteed."""
    return shares(sizes.full_nodes - sizes.lent_nodes, TEAMS)


def _submit(store: SqlStore, name: str, specs: list[JobSpec], at: Instant) -> None:
    jobs = tuple(
        NewJob(JobName(f"{name}-{index}"), spec, ArrayElement(JobName(name), index, len(specs)))
        for index, spec in enumerate(specs)
    )
    store.jobs.submit_all(Batch((NewGroup(JobName(name), "array"),), jobs), "ada", at, "")


def _queue(name: str, gpu_type: GpuType, nodes: int) -> str:
    quota = f"{{gpuType: {gpu_type}, guaranteed: {nodes * GPUS_PER_NODE}}}"
    return f"apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {{quota: [{quota}]}}\n"


def _pool(name: str, gpu_type: GpuType, nodes: int) -> str:
    return (
        f"apiVersion: quorate.dev/v1\nkind: NodePool\nmetadata: {{name: {name}}}\n"
        f"spec: {{gpuType: {gpu_type}, gpusPerNode: {GPUS_PER_NODE}, cpu: 96, memory: 1Ti, "
        f"nodes: {{prefix: {name}-, count: {nodes}}}}}\n"
    )
