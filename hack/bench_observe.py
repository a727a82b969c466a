"""What it costs to tell Prometheus, and to read dcgm-exporter: CPU of a scrape, series, bytes, and CPU of a GPU-minute.

    python -m hack.bench_observe --nodes 250
    python -m hack.bench_observe --nodes 12500      # 100,000 GPUs

CPU seconds of this process, so that a busy machine changes little.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TypeVar

import click
import msgspec
import structlog
from prometheus_client.parser import text_string_to_metric_families

from reconciler.control.gpu_use import UseBook
from reconciler.control.job_counts import JobTally
from reconciler.control.metrics import Metrics
from reconciler.control.queue_use import queue_uses
from reconciler.kubernetes.use.boards import holdings_of
from reconciler.kubernetes.use.reader import ExportedUse
from reconciler.kubernetes.use.readings import BoardReading, from_matrix
from reconciler.kubernetes.use.sources import Asked
from reconciler.model.clock import VirtualClock
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.placement.stranded_gpus import stranded_gpus
from solver.plan.plan import Certificate, Plan
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, policy_of

START = Instant.parse("2026-03-01T00:00:00Z")
GPUS_PER_NODE = 8
QUEUES = 50
H100 = GpuType("H100")
FIELDS = (
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
)
"""Of those that are read, what the exporter collects by its defaults."""
T = TypeVar("T")


def world(nodes: int) -> tuple[Snapshot, Policy]:
    """Half of the nodes are held, by a job each; as many jobs wait."""
    machines = [
        Node(NodeName(f"node-{number:05}"), "pool", Cpu(128_000), Memory(2**41), H100, held(number))
        for number in range(nodes)
    ]
    jobs = [job(number, machines[number]) for number in range(nodes // 2)]
    jobs += [job(number, None) for number in range(nodes // 2, nodes)]
    queues = tuple(
        Queue(QueueName(f"team-{number}"), QueueName("org"), (Quota(H100, guaranteed=MilliGpu.gpus(8)),))
        for number in range(QUEUES)
    )
    return snapshot_of(START, machines, jobs), policy_of(
        (Queue(QueueName("org")), *queues), (PriorityClass("standard", 1),)
    )


def held(number: int) -> tuple[Gpu, ...]:
    """The GPUs of a node."""
    return tuple(Gpu(DeviceId(f"node-{number:05}/{index}"), index) for index in range(GPUS_PER_NODE))


def job(number: int, node: Node | None) -> Job:
    """One that runs on a whole node, or waits for one."""
    spec = JobSpec(
        QueueName(f"team-{number % QUEUES}"),
        (TaskGroup("worker", 1, Shape(gpus=GPUS_PER_NODE)),),
        priority_class="standard",
    )
    if node is None:
        return Job(JobName(f"job-{number}"), START, spec)
    devices = tuple(gpu.id for gpu in node.gpus)
    return Job(
        JobName(f"job-{number}"),
        START,
        spec,
        phase="running",
        placement=(TaskPlacement("worker", 0, node.name, devices),),
    )


def spent(what: str, ask: Callable[[], T], number: int = 1, unit: str = "") -> T:
    """Do it, and say what it took."""
    began = time.process_time()
    found = ask()
    took = time.process_time() - began
    click.echo(f"{what}: {took * 1_000:.0f} ms" + (f", {took / number * 1e6:.1f} us per {unit}" if unit else ""))
    return found


def answer(nodes: int) -> bytes:
    """Prometheus' of a minute in which it scraped every 15 s."""
    values = [[START / 1_000 + at, "0.5"] for at in (10, 25, 40, 55)]
    return json.dumps(
        {
            "result": [
                {
                    "metric": {
                        "__name__": field,
                        "Hostname": f"node-{node:05}",
                        "UUID": f"GPU-{node}-{index}",
                        "exported_pod": f"job-{node}" if node < nodes // 2 else "",
                        "exported_namespace": "team",
                    },
                    "values": values,
                }
                for node in range(nodes)
                for index in range(GPUS_PER_NODE)
                for field in FIELDS
            ]
        }
    ).encode()


class Given:
    """A source that has been asked before."""

    def __init__(self, found: list[BoardReading]) -> None:
        self._found = found

    def read(self, *_: object) -> Asked:
        """All of it, once."""
        found, self._found = self._found, []
        return Asked(found)


@click.command()
@click.option("--nodes", type=click.IntRange(min=2), default=250, show_default=True, help="With eight GPUs each.")
def main(nodes: int) -> None:
    """Make a cluster up, and measure."""
    snapshot, policy = world(nodes)
    gpus = nodes * GPUS_PER_NODE
    metrics, tally = Metrics(), JobTally()
    metrics.add(tally)
    tally.rules(policy)
    metrics.observe(snapshot, Plan("", "", (), (), Certificate("none", (), 0.0, "", 0)), {"solve": 1.0}, policy=policy)
    text = spent(f"{gpus} GPUs: first scrape after a round", metrics.text)
    spent("another scrape", metrics.text)
    series = sum(len(family.samples) for family in text_string_to_metric_families(text.decode()))
    click.echo(f"{series} series, {len(text)} bytes, without those of queues and of the store")
    spent("stranded GPUs", lambda: stranded_gpus(snapshot, policy))
    spent("what queues hold", lambda: list(queue_uses(snapshot, policy)))
    body = answer(nodes)
    click.echo(f"Prometheus' answers for a minute: {len(body) / 2**20:.1f} MiB")
    readings = spent(
        "reading them", lambda: list(from_matrix(msgspec.json.decode(body), Duration(30_000))), gpus, "GPU-minute"
    )
    clock, machines = VirtualClock(START.after(Duration(50_000))), {node.name: node for node in snapshot.nodes}
    book = UseBook(clock, machines.get, lambda: Duration(86_400_000))
    known = spent(
        "which pods and jobs there are",
        lambda: holdings_of(snapshot, {("team", job.name): job.name for job in snapshot.jobs}),
    )
    reader = ExportedUse(
        Given(readings), book, lambda: known, lambda: True, clock, structlog.get_logger(), Duration(30_000)
    )

    def told() -> None:
        reader.look()
        clock.advance(60_000)
        reader.look()

    spent("making minutes of them, and telling the book", told, gpus, "GPU-minute")
    assert len(book.latest()) == nodes


if __name__ == "__main__":
    main()
