"""A control plane with two tenants, and what the quiet one measures in turns: in quiet, and while the other floods."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from hack.control_plane.plane import Caller, RefusedError, SimulatedPlane, job_document
from hack.heartbeats.figures import quantile
from hack.neighbours.flood import flooded
from reconciler.access.tokens import create_token
from solver.model.shape import Shape
from solver.model.workload import JobSpec, QueueName, TaskGroup

QUIET: Final = QueueName("quiet")
GUARANTEED = 32
LIMIT_S: Final = 300.0
BUSY: Final = (429, 503)
"""What an API answers that has too much to do."""
READS: Final = {"job": "/v1/jobs/{name}", "queues": "/v1/queues", "jobs": "/v1/jobs?limit=50&user=quiet"}
HEAD: Final = "apiVersion: quorate.dev/v1\nkind: "
POLICY: Final = {
    **{
        f"policies/{name}.yaml": f"{HEAD}Queue\nmetadata: {{name: {name}}}\n"
        f"spec: {{quota: [{{gpuType: H100, guaranteed: {GUARANTEED}}}]}}\n"
        for name in ("quiet", "noisy")
    },
    "policies/access.yaml": f"{HEAD}AccessPolicy\nmetadata: {{name: access}}\nspec:\n  roles:\n"
    '    - {role: submitter, subjects: ["user:quiet"], queues: [quiet]}\n'
    '    - {role: submitter, subjects: ["user:noisy"], queues: [noisy]}\n',
    "cluster-state/pool.yaml": f"{HEAD}NodePool\nmetadata: {{name: pool}}\n"
    "spec: {gpuType: H100, gpusPerNode: 8, cpu: 96, memory: 1Ti, nodes: {prefix: n, count: 8}}\n",
}


@dataclass
class Measured:
    """Seconds, by what was asked. `starts`: from a submission until the cluster was told to start the job.

    `refused`: requests of the tenant that were, by their status. `counts`: what its neighbour asked for meanwhile.
    """

    starts: list[float] = field(default_factory=list)
    reads: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in READS})
    refused: Counter[int] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)


@contextmanager
def two_tenants(folder: Path) -> Iterator[tuple[SimulatedPlane, Caller, Caller]]:
    """The process, and both as callers: the quiet one first."""
    policy = folder / "policy"
    for name, content in POLICY.items():
        (policy / name).parent.mkdir(parents=True, exist_ok=True)
        (policy / name).write_text(content)
    identity = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "The cluster"]):
        subprocess.run(["git", *identity, *command], cwd=policy, check=True)
    quiet, noisy = (create_token(folder / "tokens", user, ()) for user in ("quiet", "noisy"))
    plane = SimulatedPlane(folder, policy, more=("--tokens", str(folder / "tokens")))
    plane.start(LIMIT_S)
    try:
        where = plane.caller().url
        yield plane, Caller(where, quiet), Caller(where, noisy)
    finally:
        plane.stop()


def measure(folder: Path, turns: int, times: int) -> tuple[Measured, Measured]:
    """By turns in quiet and beside a flood, so that what else this machine does befalls both alike."""
    in_quiet, in_noise = Measured(), Measured()
    with two_tenants(folder) as (plane, quiet, noisy):
        for turn in range(turns):
            _work(plane, quiet, in_quiet, f"calm-{turn}", times)
            with flooded(noisy, f"flood-{turn}", in_noise.counts):
                _work(plane, quiet, in_noise, f"storm-{turn}", times)
    return in_quiet, in_noise


def _work(plane: SimulatedPlane, caller: Caller, into: Measured, name: str, times: int) -> None:
    """Jobs inside the tenant's guarantee, each waited for until its start was ordered, and looks at what there is."""
    spec = JobSpec(QUIET, (TaskGroup("worker", 1, Shape(gpus=8)),), command=("sleep", "1s"))
    for number in range(times):
        job, asked_s = f"{name}-{number}", time.monotonic()
        _asked(into, partial(caller.post, "/v1/jobs", job_document(job, msgspec.to_builtins(spec))))
        plane.until(f"{job} is started", partial(_start_of, plane, job), LIMIT_S)
        into.starts.append(_start_of(plane, job)[0] - asked_s)
        for what, path in READS.items():
            asked_s = time.monotonic()
            _asked(into, partial(caller.get, path.format(name=job)))
            into.reads[what].append(time.monotonic() - asked_s)


def _asked(into: Measured, ask: Callable[[], object]) -> None:
    """Until it is answered."""
    while True:
        try:
            ask()
        except RefusedError as refused:
            into.refused[refused.status] += 1
            if refused.status not in BUSY:
                raise
        else:
            return


def _start_of(plane: SimulatedPlane, job: str) -> list[float]:
    """When the cluster was told to start it."""
    return [order.at_s for order in plane.ordered() if order.job == job and order.kind == "StartGang"]


def ratios(quiet: Measured, noise: Measured) -> dict[str, dict[str, float]]:
    """What the flood makes of each latency: how many times the quiet one, at the median and at the 99th percentile."""
    return {
        name: {
            "p50": round(median(loud) / median(calm), 2),
            "p99": round(quantile(sorted(loud), 0.99) / quantile(sorted(calm), 0.99), 2),
        }
        for name, (calm, loud) in _pairs(quiet, noise).items()
    }


def medians(quiet: Measured, noise: Measured) -> dict[str, tuple[float, float]]:
    """Milliseconds, in quiet and beside the flood."""
    return {
        name: (round(1000 * median(calm), 1), round(1000 * median(loud), 1))
        for name, (calm, loud) in _pairs(quiet, noise).items()
    }


def _pairs(quiet: Measured, noise: Measured) -> dict[str, tuple[list[float], list[float]]]:
    return {"start": (quiet.starts, noise.starts)} | {name: (quiet.reads[name], noise.reads[name]) for name in READS}
