"""What a pass of the control plane costs while nothing happens: `python -m hack.bench_passes --waiting 20000 -o json`.

The real loop on SQLite in a folder of its own, without the program, over the simulated backend: nodes of 8 GPUs that all are taken.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import click
import msgspec

from reconciler.backends.simulated.backend import SimulatedBackend
from reconciler.backends.simulated.behaviour import KIND
from reconciler.backends.simulated.cluster import SimulatedCluster
from reconciler.control.control import ControlPlane, PolicyInForce
from reconciler.control.garbage_collection import seldom
from reconciler.control.ledger_site import one_pass
from reconciler.control.recording import solver_with
from reconciler.documents.operations import Operations
from reconciler.model.clock import VirtualClock
from reconciler.model.job_groups import Batch, NewGroup, NewJob
from reconciler.model.job_record import ArrayElement
from reconciler.store.store import SqlStore, open_store
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from solver.policy.policy import Queue, SchedulingPolicy, policy_of

QUEUE: Final = QueueName("q")
GPUS_PER_NODE: Final = 8
ARRAY: Final = 500
SETTLING: Final = 4
"""Passes until all that can run does, and the round says nothing new."""


class Figures(msgspec.Struct, frozen=True):
    """Seconds of one pass, medians; `phase_ms`: of the last one, by the wall."""

    nodes: int
    running: int
    waiting: int
    passes: int
    cpu_s: float
    wall_s: float
    phase_ms: dict[str, float]


class _Timed(NamedTuple):
    """One pass."""

    cpu_s: float
    wall_s: float
    phase_ms: dict[str, float]


class _Clock(VirtualClock):
    """The jobs' clock is moved by hand; phases are measured by the machine's."""

    def monotonic_s(self) -> float:
        return time.monotonic()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--running", type=click.IntRange(min=1), default=10_000, show_default=True, help="Jobs of one GPU.")
@click.option("--waiting", type=click.IntRange(min=0), default=20_000, show_default=True, help="Jobs that find none.")
@click.option("--passes", type=click.IntRange(min=1), default=9, show_default=True)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def main(running: int, waiting: int, passes: int, output: str) -> None:
    """Report CPU and wall-clock seconds of a pass that has nothing to do."""
    with tempfile.TemporaryDirectory() as folder, _plane(Path(folder), -(-running // GPUS_PER_NODE)) as (plane, clock):
        found = measure(plane, clock, running, waiting, passes)
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(found)))
        return
    for name, value in msgspec.to_builtins(found).items():
        click.echo(f"{name:10} {value}")


def measure(plane: ControlPlane, clock: VirtualClock, running: int, waiting: int, passes: int) -> Figures:
    """Fill the cluster, let others wait, and time what follows."""
    seldom()  # as `quorate run` does
    _submit(plane, "runs", running)
    _pass(plane, clock, SETTLING)
    _submit(plane, "waits", waiting)
    timed = _pass(plane, clock, SETTLING + passes)[SETTLING:]
    cpu_s, wall_s = median([each.cpu_s for each in timed]), median([each.wall_s for each in timed])
    phases = {name: round(ms, 1) for name, ms in timed[-1].phase_ms.items()}
    nodes = len(plane.policies.current().nodes)
    return Figures(nodes, running, waiting, passes, round(cpu_s, 3), round(wall_s, 3), phases)


def _pass(plane: ControlPlane, clock: VirtualClock, times: int) -> list[_Timed]:
    found = []
    for _ in range(times):
        clock.advance(1_000)
        cpu_s, wall_s = time.process_time(), time.perf_counter()
        known = one_pass(plane)
        found.append(_Timed(time.process_time() - cpu_s, time.perf_counter() - wall_s, known.phase_ms))
    return found


def _submit(plane: ControlPlane, prefix: str, number: int) -> None:
    shape = TaskGroup("worker", 1, Shape(gpus=1))
    spec = JobSpec(QUEUE, (shape,), command=("sleep", "forever"))
    for first in range(0, number, ARRAY):
        name, size = JobName(f"{prefix}-{first // ARRAY:04}"), min(ARRAY, number - first)
        jobs = tuple(NewJob(JobName(f"{name}-{index}"), spec, ArrayElement(name, index, size)) for index in range(size))
        plane.jobs.submit_all(Batch((NewGroup(name, "array"),), jobs), "ada", plane.clock.now(), "")


@contextmanager
def _plane(folder: Path, nodes: int) -> Iterator[tuple[ControlPlane, VirtualClock]]:
    clock, inventory = _Clock(), tuple(_node(number) for number in range(nodes))
    store: SqlStore = open_store(folder / "quorate.db")
    backend = SimulatedBackend(SimulatedCluster(inventory, clock, random.Random(1), KIND))
    policy = policy_of((Queue(QUEUE),), (), SchedulingPolicy())
    yield (
        ControlPlane(
            "only",
            store.jobs,
            store.ledger,
            store.history,
            store.checkpoints,
            store.interventions,
            store.health,
            backend,
            backend,
            _InForce(PolicyInForce("revision", policy, inventory, Operations())),
            solver_with(None),
            clock,
        ),
        clock,
    )
    store.close()


class _InForce:
    """Implements PolicySource: always the same."""

    def __init__(self, policy: PolicyInForce) -> None:
        self._policy = policy

    def current(self) -> PolicyInForce:
        return self._policy


def _node(number: int) -> Node:
    name = NodeName(f"n{number:05}")
    gpus = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(GPUS_PER_NODE))
    return Node(name, "pool", Cpu(64_000), Memory(2**38), GpuType("H100"), gpus)


if __name__ == "__main__":
    main()
