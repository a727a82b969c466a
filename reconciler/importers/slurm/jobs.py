"""What `squeue --json` prints as a snapshot: jobs that run and wait, on the nodes that the import declares."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from reconciler.importers.inventory import gpus_of_gres, node_name
from reconciler.importers.slugs import slug
from reconciler.importers.slurm.hosts import hosts
from reconciler.importers.slurm.tres import tres
from reconciler.importers.source import SourceFile
from reconciler.model.problem import START, InvalidDocumentsError, problem_at
from solver.model.cluster import DeviceId, GpuType, Node
from solver.model.quantities import Cpu, Duration, Instant, Memory
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement

_ARRAY_MAX: Final = 1000
"""Of one array so many elements are taken to wait: more would change nothing of a first round."""
_INDEX = re.compile(r"\(IDX:([0-9,-]+)\)")


class QueueNaming(NamedTuple):
    """The queues and classes that an import made, by what Slurm calls them: accounts or partitions, and pairs or single names."""

    queues: Mapping[str, str]
    classes: Mapping[str, str]


@dataclass
class SlurmQueue:
    """Reads jobs. `left_out`: jobs that could not be taken, with why."""

    nodes: Mapping[str, Node]
    naming: QueueNaming
    left_out: list[str] = field(default_factory=list)
    _held: dict[str, set[DeviceId]] = field(default_factory=lambda: defaultdict(set))

    def snapshot(self, source: SourceFile, now: Instant) -> Snapshot:
        """The snapshot at an instant, or when Slurm says that it printed. Raises InvalidDocumentsError."""
        found = _decoded(source)
        records = [each for each in found["jobs"] if isinstance(each, dict)]
        # Jobs that say which devices they have come first: what the others have is taken from the rest.
        records.sort(key=lambda each: not _INDEX.search(" ".join(_listed(each.get("gres_detail")))))
        jobs = [job for each in records for job in self._readable(each)]
        time = Instant(_number(found.get("last_update")) * 1000) or now
        return snapshot_of(time, tuple(self.nodes.values()), tuple(sorted(jobs, key=lambda job: job.name)))

    def _readable(self, record: Mapping[str, Any]) -> list[Job]:
        try:
            return list(self._jobs(record))
        except ValueError as error:
            self.left_out.append(f"{_name(record)}: {error}")
            return []

    def _jobs(self, record: Mapping[str, Any]) -> Iterator[Job]:
        states = {str(state).upper() for state in _listed(record.get("job_state"))}
        if "RUNNING" in states and "COMPLETING" not in states:
            running = self._running(record)
            if running is not None:
                yield running
        elif "PENDING" in states:
            for name in _elements(record):
                yield Job(
                    name, _instant(record, "submit_time"), self._spec(record, self._groups(record)), _user(record)
                )

    def _running(self, record: Mapping[str, Any]) -> Job | None:
        name = _name(record)
        named = [node_name(each) for each in hosts(str(record.get("nodes") or ""))]
        missing = [each for each in named if each not in self.nodes]
        if missing or not named:
            self.left_out.append(
                f"{name}: no NodePool has its node {', '.join(missing[:3])}" if missing else f"{name}: on no node"
            )
            return None
        details = _listed(record.get("gres_detail"))
        total = _gpus(tres(str(record.get("tres_alloc_str") or record.get("tres_req_str") or "")).gpus)
        each_has = total // len(named)
        tasks = []
        for index, node in enumerate(named):
            devices = self._devices(self.nodes[node], details[index] if index < len(details) else "", each_has)
            tasks.append(TaskPlacement("worker", index, self.nodes[node].name, devices))
        counts = {len(task.devices) for task in tasks}
        if len(counts) > 1:
            self.left_out.append(f"{name}: it has another number of GPUs on each node")
            return None
        shape = self._shape(record, len(named), counts.pop())
        spec = self._spec(record, (TaskGroup("worker", len(named), shape),))
        start = _instant(record, "start_time")
        limit = spec.time_limit
        submitted = min(_instant(record, "submit_time"), start)
        return Job(name, submitted, spec, _user(record), "running", 1, start, tuple(tasks), limit)

    def _devices(self, node: Node, detail: str, count: int) -> tuple[DeviceId, ...]:
        """The GPUs by the numbers that Slurm prints; without these as many as it has, from the first that is free."""
        matched = _INDEX.search(detail)
        if matched:
            numbers = [int(each) for each in hosts(f"[{matched[1]}]")]
            found = [gpu.id for gpu in node.gpus if gpu.index in numbers]
        else:
            found = [gpu.id for gpu in node.gpus if gpu.id not in self._held[node.name]][
                : gpus_of_gres(detail)[1] or count
            ]
        self._held[node.name] |= set(found)
        return tuple(found)

    def _groups(self, record: Mapping[str, Any]) -> tuple[TaskGroup, ...]:
        """A task for each node where the GPUs divide among them, else one for each GPU."""
        total = _gpus(tres(str(record.get("tres_req_str") or "")).gpus)
        nodes = max(1, _number(record.get("node_count")))
        replicas = nodes if total % nodes == 0 else total
        return (TaskGroup("worker", replicas, self._shape(record, replicas, total // replicas)),)

    def _shape(self, record: Mapping[str, Any], replicas: int, gpus: int) -> Shape:
        amounts = tres(str(record.get("tres_alloc_str") or record.get("tres_req_str") or ""))
        types = tuple(GpuType(kind) for kind in amounts.gpus if kind)[:1] if gpus else ()
        cpu = Cpu(int(amounts.host.get("cpu", 0) * 1000) // replicas)
        return Shape(gpus, types, cpu, Memory(int(amounts.host.get("memory", 0)) // replicas))

    def _spec(self, record: Mapping[str, Any], groups: tuple[TaskGroup, ...]) -> JobSpec:
        account, qos = str(record.get("account") or ""), str(record.get("qos") or "")
        partition = str(record.get("partition") or "").split(",")[0]
        queues, classes = self.naming
        queue = (
            queues.get(f"users/{account}") or queues.get(f"account/{account}") or queues.get(f"partition/{partition}")
        )
        keys = (f"{partition}/{qos}", f"PartitionName/{partition}", f"QOS/{qos}")
        name = next((classes[key] for key in keys if key in classes), "")
        minutes = _number(record.get("time_limit"))
        limit = Duration(minutes * 60_000) if minutes else None
        return JobSpec(QueueName(queue or slug(account or partition)), groups, name, time_limit=limit)


def _gpus(by_type: Mapping[str, Any]) -> int:
    """All GPUs of a list that may count them twice: together, and by type."""
    return int(by_type[""] if "" in by_type else sum(by_type.values()))


class _Keys(msgspec.Struct):
    """What tells one kind of file from the other: a snapshot has nodes beside its jobs."""

    jobs: msgspec.Raw = msgspec.Raw()
    nodes: msgspec.Raw = msgspec.Raw()


def is_queue(raw: bytes) -> bool:
    """Whether this is what `squeue --json` prints, and no snapshot."""
    try:
        keys = msgspec.json.decode(raw, type=_Keys)
    except msgspec.MsgspecError:
        return False
    return bool(bytes(keys.jobs)) and not bytes(keys.nodes)


def _decoded(source: SourceFile) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(source.raw)
    except msgspec.DecodeError as error:
        raise InvalidDocumentsError([problem_at(source.name, START, "syntax", f"not JSON: {error}")]) from error
    if not isinstance(found, dict) or not isinstance(found.get("jobs"), list):
        fix = "Give what `squeue --json` prints, or a snapshot of Quorate."
        raise InvalidDocumentsError([problem_at(source.name, START, "jobs", "no jobs are in it", fix)])
    return found


def _name(record: Mapping[str, Any], index: str = "") -> JobName:
    return JobName(slug(f"{record.get('name') or 'job'}-{record.get('job_id')}{'-' * bool(index)}{index}"))


def _elements(record: Mapping[str, Any]) -> Iterator[JobName]:
    """Waiting elements of an array are one record: `1-3%2`, or cut short with dots."""
    written = str(record.get("array_task_string") or "").partition("%")[0].replace("...", "").rstrip(",")
    if not written:
        yield _name(record)
        return
    indices = [each.partition(":")[0] for each in written.split(",") if each]
    yield from (_name(record, index) for index in hosts(f"[{','.join(indices)}]")[:_ARRAY_MAX])


def _listed(value: Any) -> Sequence[str]:
    return [str(each) for each in value] if isinstance(value, list) else [str(value)] if value else []


def _user(record: Mapping[str, Any]) -> str:
    return str(record.get("user_name") or "")


def _instant(record: Mapping[str, Any], key: str) -> Instant:
    return Instant(_number(record.get(key)) * 1000)


def _number(value: Any) -> int:
    """A number as it is printed: plain, or with whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else 0
    return int(value) if isinstance(value, int | float) else 0
