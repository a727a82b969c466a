"""Commands of Slurm that print what a test says, in the shapes of several versions; and the planes that look at them.

The shapes are restated facts: what differs between versions is how numbers and states are written, and which command prints nodes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from reconciler.analysis.backtest.history_file import RecordedJob
from reconciler.analysis.backtest.observed_files import ObservedFiles
from reconciler.analysis.backtest.past import read_recorded
from reconciler.control.control import PolicyInForce, Solved
from reconciler.model.clock import VirtualClock
from reconciler.model.comparison import ComparedJob, ObservedComparison
from reconciler.slurm.commands import SlurmCommands
from reconciler.slurm.observer import SlurmMemory, SlurmObserver
from reconciler.slurm.runner import SlurmRunner
from reconciler.slurm.site import SlurmCluster, SlurmPlane
from reconciler.store.store import SqlStore
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.snapshot import Snapshot
from solver.model.workload import QueueName
from solver.policy.policy import Policy, PriorityClass, Queue, Quota, policy_of
from solver.round.solve import decide
from tests.fresh_store import fresh_store

VERSIONS: Final = (
    pytest.param("21.08", marks=pytest.mark.thorough),
    "22.05",
    pytest.param("23.02", marks=pytest.mark.thorough),
    "24.05",
)
EVERY: Final = Duration(30_000)
GPU: Final = "gpu:h100:{}"

SCRIPT: Final = """#!/bin/sh
here=$(dirname "$0")
me=$(basename "$0")
echo "$me $*" >> "$here/calls"
[ -f "$here/$me.hangs" ] && exec sleep 1000
[ -f "$here/$me.fails" ] && cat "$here/$me.fails" >&2 && exit 1
exec cat "$here/$me.json"
"""

POLICY: Final = policy_of(
    (
        Queue(QueueName("science"), quota=(Quota(GpuType("H100"), MilliGpu(8_000)),)),
        Queue(QueueName("physics"), QueueName("science"), (Quota(GpuType("H100"), MilliGpu(8_000)),)),
        Queue(QueueName("biology"), QueueName("science"), (Quota(GpuType("H100"), MilliGpu(0)),)),
    ),
    (PriorityClass("gpu", 10), PriorityClass("gpu-high", 20)),
)


@dataclass
class FakeJob:
    """A job in words of no version. `gpus`: of all nodes together; `at`: seconds after the clock's beginning."""

    id: int
    state: str = "PENDING"
    nodes: str = ""
    gpus: int = 4
    submitted: int = 0
    started: int = 0
    ended: int = 0
    name: str = "train"
    account: str = "physics"
    partition: str = "gpu"
    qos: str = "normal"
    minutes: int | None = 60
    reason: str = "Priority"
    detail: str = ""
    array: str = ""
    array_of: int = 0
    element: int | None = None
    more: dict[str, Any] = field(default_factory=dict)


class FakeSlurm:
    """A folder with the three commands. `jobs` and `states` (of nodes) are printed as they stand at `show`."""

    def __init__(self, folder: Path, version: str = "24.05", begin: int = 0) -> None:
        self.folder = folder
        self.version = version
        self.jobs: list[FakeJob] = []
        self.states = {"n1": ["IDLE"], "n2": ["IDLE"]}
        self._begin = begin
        folder.mkdir()
        for name in ("squeue", "scontrol", "sinfo"):
            (folder / name).write_text(SCRIPT)
            (folder / name).chmod(0o755)
        if version < "23":
            self.fails("scontrol", "scontrol: unrecognized option '--json'")
        self.show()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}"}

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def show(self, *jobs: FakeJob) -> None:
        self.jobs = list(jobs)
        self.prints("squeue", {"jobs": [self._record(job) for job in jobs]})
        nodes = [{"name": name, **self._node(states)} for name, states in self.states.items()]
        groups = [self._group(name, states) for name, states in self.states.items()]
        self.prints("scontrol", {"nodes": nodes})
        self.prints("sinfo", {"nodes": nodes} if self.version < "23" else {"sinfo": groups})

    def prints(self, command: str, document: object) -> None:
        """Whole or not at all: a look may be under way."""
        text = document if isinstance(document, str) else json.dumps(document)
        part = self.folder / f"{command}.part"
        part.write_text(text)
        part.replace(self.folder / f"{command}.json")

    def fails(self, command: str, said: str) -> None:
        (self.folder / f"{command}.fails").write_text(said + "\n")

    def hangs(self, command: str) -> None:
        (self.folder / f"{command}.hangs").touch()

    def goes_on(self, command: str) -> None:
        for ending in ("fails", "hangs"):
            (self.folder / f"{command}.{ending}").unlink(missing_ok=True)

    def _number(self, value: int | None) -> object:
        if self.version < "23":
            return value
        return {"set": value is not None, "infinite": value is None, "number": value or 0}

    def _time(self, seconds: int) -> object:
        at = self._begin + seconds if seconds else 0
        return self._number(at) if self.version >= "24" else at

    def _state(self, words: str) -> object:
        return words.split("+") if self.version >= "23.11" else words.partition("+")[0]

    def _record(self, job: FakeJob) -> dict[str, Any]:
        amounts = f"cpu=8,mem=16G,node=1,billing=8,gres/gpu={job.gpus},gres/gpu:h100={job.gpus}"
        return {
            "job_id": job.id,
            "name": job.name,
            "user_name": "ada",
            "account": job.account,
            "partition": job.partition,
            "qos": job.qos,
            "job_state": self._state(job.state),
            "state_reason": job.reason,
            "nodes": job.nodes,
            "node_count": self._number(1),
            "submit_time": self._time(job.submitted + 1),
            "eligible_time": self._time(job.submitted + 1),
            "start_time": self._time(job.started),
            "end_time": self._time(job.ended),
            "time_limit": self._number(job.minutes),
            "tres_req_str": amounts,
            "tres_alloc_str": amounts if job.nodes else "",
            "gres_detail": [job.detail] if job.detail else [],
            "array_job_id": self._number(job.array_of) if self.version >= "24" else job.array_of,
            "array_task_id": self._number(job.element),
            "array_task_string": job.array,
            **job.more,
        }

    def _node(self, states: list[str]) -> dict[str, Any]:
        state: object = states if self.version >= "23" else states[0].lower()
        return {"state": state, "state_flags": states[1:], "gres": GPU.format(4), "partitions": ["gpu"]}

    def _group(self, name: str, states: list[str]) -> dict[str, Any]:
        return {"node": {"state": states}, "nodes": {"nodes": [name]}, "gres": {"total": GPU.format(4)}}


def declared(*names: str, gpus: int = 4) -> tuple[Node, ...]:
    return tuple(
        Node(
            NodeName(name),
            "pool",
            Cpu(64_000),
            Memory(64 * 2**30),
            GpuType("H100"),
            tuple(Gpu(DeviceId(f"{name}-{index}"), index) for index in range(gpus)),
        )
        for name in names
    )


@dataclass
class StandingPolicy:
    """Implements PolicySource with one policy."""

    policy: Policy = POLICY
    nodes: tuple[Node, ...] = field(default_factory=lambda: declared("n1", "n2"))

    def current(self) -> PolicyInForce:
        return PolicyInForce("a" * 40, self.policy, self.nodes)


class SetClock(VirtualClock):
    """A virtual clock whose wall can be set."""

    set_by = 0

    def now(self) -> Instant:
        return super().now().after(self.set_by)

    def monotonic_s(self) -> float:
        return (super().now() - self._start) / 1_000


def greedy(snapshot: Snapshot, policy: Policy) -> Solved:
    return Solved.at_once(decide(snapshot, policy, None).plan())


class Beside:
    """A runner beside a fake Slurm, that looks when a test says so."""

    def __init__(self, folder: Path, version: str = "24.05", timeout_s: float = 60.0) -> None:
        self.clock = SetClock()
        self.slurm = FakeSlurm(folder / "slurm", version, self.clock.now() // 1000)
        self.policies = StandingPolicy()
        self.store: SqlStore = fresh_store(folder / "quorate.db")
        files = ObservedFiles(folder / "observed.jsonl.gz", folder / "observed-snapshot.json")
        self.memory = SlurmMemory(self.store.ledger, self.store.history, "observer", files, folder / "comparison.json")
        self._timeout_s = timeout_s
        self.begin()

    def begin(self) -> None:
        """The process starts, or starts again."""
        self.observer = SlurmObserver(self.memory, EVERY, self.clock, structlog.get_logger())
        cluster = SlurmCluster(SlurmCommands(self.slurm.environment, self._timeout_s))
        plane = SlurmPlane(cluster, self.observer, self.store.interventions, self.policies, greedy, self.clock)
        self.runner = SlurmRunner(plane, EVERY.seconds)

    def look(self, *jobs: FakeJob, after_s: int = 30) -> ObservedComparison:
        """One more look, so long after the one before."""
        self.clock.advance(after_s * 1000)
        self.slurm.show(*jobs)
        self.runner.one_pass()
        return self.observer.summary

    def at(self) -> int:
        """Seconds since the beginning, by Slurm's clock."""
        return round(self.clock.monotonic_s())

    def on_disk(self) -> dict[str, RecordedJob]:
        self.observer.save()
        return {job.name: job for job in read_recorded(self.memory.files.history)[1]}


@contextmanager
def beside_slurm(folder: Path, version: str = "24.05", timeout_s: float = 60.0) -> Iterator[Beside]:
    made = Beside(folder, version, timeout_s)
    try:
        yield made
    finally:
        made.store.close()


def of(found: ObservedComparison, job: str) -> ComparedJob:
    (one,) = (each for each in found.starts if each.job == job)
    return one
