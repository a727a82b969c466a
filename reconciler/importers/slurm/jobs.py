"""What `squeue --json` prints as a snapshot: jobs that run and wait, on the nodes that the import declares."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

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
_NAME_MAX: Final = 63
_NOT_SET: Final = (0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF)
"""NO_VAL and INFINITE, of 32 and 64 bits (slurm.h): versions before 23.02 may print them as plain numbers."""
_INDEX = re.compile(r"\(IDX:([0-9,-]+)\)")


class SlurmNaming(Protocol):
    """What the policy calls the accounts, partitions, QOS and GPU types of Slurm."""

    def queue_of(self, account: str, partition: str) -> str:
        """The queue of a job."""

    def class_of(self, partition: str, qos: str) -> str:
        """The priority class of a job; "": none is known."""

    def type_of(self, kind: str) -> str:
        """The GPU type that Slurm calls so."""


class QueueNaming(NamedTuple):
    """Implements SlurmNaming with the queues and classes that an import made, by what Slurm calls them: accounts or partitions, and
    pairs or single names. `types`: GPU types by what Slurm calls them, where it was said.
    """

    queues: Mapping[str, str]
    classes: Mapping[str, str]
    types: Mapping[str, str] = {}

    def queue_of(self, account: str, partition: str) -> str:
        """That of the account, else that of the partition, else one called like them."""
        keys = f"users/{account}", f"account/{account}", f"partition/{partition}"
        return next((self.queues[key] for key in keys if key in self.queues), slug(account or partition))

    def class_of(self, partition: str, qos: str) -> str:
        """That of both together, else that of one of them."""
        keys = f"{partition}/{qos}", f"PartitionName/{partition}", f"QOS/{qos}"
        return next((self.classes[key] for key in keys if key in self.classes), "")

    def type_of(self, kind: str) -> str:
        """As the import was told, else as it is."""
        return self.types.get(kind, kind)


@dataclass
class SlurmQueue:
    """Reads jobs. `left_out`: jobs that could not be taken, with why; `taken`: nodes on which such a job runs."""

    nodes: Mapping[str, Node]
    naming: SlurmNaming
    left_out: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    _held: dict[str, set[DeviceId]] = field(default_factory=lambda: defaultdict(set))

    def snapshot(self, source: SourceFile, now: Instant) -> Snapshot:
        """The snapshot at an instant, or when Slurm says that it printed. Raises InvalidDocumentsError."""
        found = decoded(source)
        time = Instant(number(found.get("last_update")) * 1000) or now
        return snapshot_of(time, tuple(self.nodes.values()), self.jobs(records_in(found)))

    def jobs(self, records: Iterable[Mapping[str, Any]]) -> tuple[Job, ...]:
        """The jobs that run and wait by these records, sorted by name. One that can't be read is left out."""
        # Jobs that say which devices they have come first: what the others have is taken from the rest.
        ordered = sorted(records, key=lambda each: not _INDEX.search(" ".join(listed(each.get("gres_detail")))))
        jobs = dict[JobName, Job]()
        for record in ordered:
            for job in self._readable(record):
                if jobs.setdefault(job.name, job) is not job:
                    self._leave_out(record, "another job has its number")
        return tuple(jobs[name] for name in sorted(jobs))

    def past(self, records: Iterable[Mapping[str, Any]]) -> Iterator[Job]:
        """Those that had nodes and have none any more, as they were submitted. One that can't be read is left out."""
        for record in records:
            if record.get("nodes") and not runs(record) and not waits(record):
                with suppress(ValueError):
                    spec = self._spec(record, self._groups(record))
                    yield Job(name_of(record), instant(record, "submit_time"), spec, _user(record))

    def _readable(self, record: Mapping[str, Any]) -> list[Job]:
        try:
            return list(self._jobs(record))
        except ValueError as error:
            self._leave_out(record, str(error))
            return []

    def _leave_out(self, record: Mapping[str, Any], why: str) -> None:
        self.left_out.append(f"{name_of(record)}: {why}")
        if runs(record):
            with suppress(ValueError):
                self.taken |= {node_name(each) for each in hosts(str(record.get("nodes") or ""))}

    def _jobs(self, record: Mapping[str, Any]) -> Iterator[Job]:
        if runs(record):
            yield self._running(record)
        elif waits(record):
            for name in names_of(record):
                yield Job(name, instant(record, "submit_time"), self._spec(record, self._groups(record)), _user(record))

    def _running(self, record: Mapping[str, Any]) -> Job:
        """Raises ValueError where it is not known what it has."""
        named = [node_name(each) for each in hosts(str(record.get("nodes") or ""))]
        missing = [each for each in named if each not in self.nodes]
        if missing or not named:
            raise ValueError(f"no NodePool has its node {', '.join(missing[:3])}" if missing else "on no node")
        details = listed(record.get("gres_detail"))
        total = _gpus(tres(str(record.get("tres_alloc_str") or record.get("tres_req_str") or "")).gpus)
        each_has = total // len(named)
        held = [
            self._devices(self.nodes[node], details[index] if index < len(details) else "", each_has)
            for index, node in enumerate(named)
        ]
        # Tasks of one group are alike: where nodes give it other numbers of GPUs, there is a group for each number.
        sizes = sorted({len(devices) for devices in held})
        called = {size: "worker" if len(sizes) == 1 else f"worker-{size}" for size in sizes}
        tasks, members = list[TaskPlacement](), Counter[str]()
        for node, devices in zip(named, held, strict=True):
            group = called[len(devices)]
            tasks.append(TaskPlacement(group, members[group], self.nodes[node].name, devices))
            members[group] += 1
        shaped = ((called[size], members[called[size]], self._shape(record, len(named), size)) for size in sizes)
        spec = self._spec(record, tuple(TaskGroup(*each) for each in shaped))
        tasks.sort(key=lambda task: (task.group, task.index))
        start = instant(record, "start_time")
        submitted = min(instant(record, "submit_time"), start)
        return Job(name_of(record), submitted, spec, _user(record), "running", 1, start, tuple(tasks), spec.time_limit)

    def _devices(self, node: Node, detail: str, count: int) -> tuple[DeviceId, ...]:
        """The GPUs by the numbers that Slurm prints; without these as many as it has, from the first that is free.

        Raises ValueError where it has more than there are.
        """
        matched, held = _INDEX.search(detail), self._held[node.name]
        numbers = [int(each) for each in hosts(f"[{matched[1]}]")] if matched else []
        wanted = len(numbers) or gpus_of_gres(detail)[1] or count
        free = [gpu for gpu in node.gpus if gpu.id not in held]
        free.sort(key=lambda gpu: gpu.index not in numbers)
        found = tuple(sorted(gpu.id for gpu in free[:wanted]))
        if len(found) < wanted:
            raise ValueError(f"it has {wanted} GPUs of {node.name}, and only {len(found)} of those declared are free")
        held |= set(found)
        return found

    def _groups(self, record: Mapping[str, Any]) -> tuple[TaskGroup, ...]:
        """A task for each node where the GPUs divide among them, else one for each GPU."""
        total = _gpus(tres(str(record.get("tres_req_str") or "")).gpus)
        nodes = max(1, number(record.get("node_count")))
        replicas = nodes if total % nodes == 0 else total
        return (TaskGroup("worker", replicas, self._shape(record, replicas, total // replicas)),)

    def _shape(self, record: Mapping[str, Any], replicas: int, gpus: int) -> Shape:
        amounts = tres(str(record.get("tres_alloc_str") or record.get("tres_req_str") or ""))
        types = tuple(GpuType(self.naming.type_of(kind)) for kind in amounts.gpus if kind)[:1] if gpus else ()
        cpu = Cpu(int(amounts.host.get("cpu", 0) * 1000) // replicas)
        return Shape(gpus, types, cpu, Memory(int(amounts.host.get("memory", 0)) // replicas))

    def _spec(self, record: Mapping[str, Any], groups: tuple[TaskGroup, ...]) -> JobSpec:
        account, qos = str(record.get("account") or ""), str(record.get("qos") or "")
        partition = str(record.get("partition") or "").split(",")[0]
        name = self.naming.class_of(partition, qos)
        minutes = number(record.get("time_limit"))
        limit = Duration(minutes * 60_000) if minutes else None
        return JobSpec(QueueName(self.naming.queue_of(account, partition)), groups, name, time_limit=limit)


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


def decoded(source: SourceFile) -> dict[str, Any]:
    """What `squeue --json` prints. Raises InvalidDocumentsError for what has no jobs."""
    try:
        found = msgspec.json.decode(source.raw)
    except msgspec.DecodeError as error:
        raise InvalidDocumentsError([problem_at(source.name, START, "syntax", f"not JSON: {error}")]) from error
    if not isinstance(found, dict) or not isinstance(found.get("jobs"), list):
        fix = "Give what `squeue --json` prints, or a snapshot of Quorate."
        raise InvalidDocumentsError([problem_at(source.name, START, "jobs", "no jobs are in it", fix)])
    return found


def records_in(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Its records of jobs."""
    return [each for each in found["jobs"] if isinstance(each, dict)]


def runs(record: Mapping[str, Any]) -> bool:
    """Whether it has nodes, and has not ended."""
    states = states_of(record)
    return "RUNNING" in states and "COMPLETING" not in states


def waits(record: Mapping[str, Any]) -> bool:
    """Whether it is to start; not while its nodes are cleaned after an earlier attempt."""
    return "PENDING" in states_of(record) and not runs(record)


def states_of(record: Mapping[str, Any]) -> frozenset[str]:
    """Its state and the flags beside it: one word in older versions, a list in newer."""
    return frozenset(str(state).upper() for state in listed(record.get("job_state")))


def name_of(record: Mapping[str, Any], index: str = "") -> JobName:
    """A name with its number, so that no two jobs have it. An element of an array keeps its own from waiting to its end."""
    array, element = number(record.get("array_job_id")), index or _text_of(record.get("array_task_id"))
    end = f"-{array or record.get('job_id')}-{element}" if element else f"-{record.get('job_id')}"
    ending = slug(end)
    return JobName(f"{slug(str(record.get('name') or 'job'))[: _NAME_MAX - 1 - len(ending)].rstrip('-')}-{ending}")


def names_of(record: Mapping[str, Any]) -> Iterator[JobName]:
    """Waiting elements of an array are one record: `1-3%2`, or cut short with dots."""
    written = str(record.get("array_task_string") or "").partition("%")[0].replace("...", "").rstrip(",")
    if not written:
        yield name_of(record)
        return
    indices = [each.partition(":")[0] for each in written.split(",") if each]
    yield from (name_of(record, index) for index in hosts(f"[{','.join(indices)}]")[:_ARRAY_MAX])


def listed(value: Any) -> Sequence[str]:
    """A list of words, also where there is one, or none."""
    return [str(each) for each in value] if isinstance(value, list) else [str(value)] if value else []


def instant(record: Mapping[str, Any], key: str) -> Instant:
    """A time, which Slurm has in seconds; 0 where it is not known."""
    return Instant(number(record.get(key)) * 1000)


def number(value: Any) -> int:
    """A number as it is printed: plain, or with whether it is set."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") and not value.get("infinite") else 0
    return int(value) if isinstance(value, int | float) and math.isfinite(value) and value not in _NOT_SET else 0


def _user(record: Mapping[str, Any]) -> str:
    return str(record.get("user_name") or "")


def _text_of(value: Any) -> str:
    """The number of an element, which may be 0; "": it is none."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
