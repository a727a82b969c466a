"""A batch script as a Job document: the script itself travels in the command, and says loudly what of it is passed over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from reconciler.documents.slurm import amounts
from reconciler.documents.slurm.directives import Directive, IgnoredDirective, ScriptError, directives
from reconciler.documents.slurm.flags import FLAGS, UNKNOWN
from reconciler.documents.slurm.names import KnownNames, SlurmNames
from reconciler.documents.slurm.script import command_of, unavailable_in
from solver.model.document import API_VERSION

T = TypeVar("T")

_NAMING = ("account", "partition", "qos")
SCRIPT_BYTES_MAX = 100_000
"""Linux hands no program an argument of more than 128 KiB (MAX_ARG_STRLEN), and the script is one."""


class Submitter(NamedTuple):
    """What a script is told of where it was submitted from."""

    folder: str
    environment: Mapping[str, str]


class BatchJob(NamedTuple):
    """The job that a script asks for, as a document; the policy's queue may still be missing. `passed_over` is for its owner.

    `names`: by what its queue and class are found in a policy, and `lines`: where the script says them.
    """

    document: dict[str, Any]
    passed_over: tuple[IgnoredDirective, ...]
    names: SlurmNames = SlurmNames()
    lines: Mapping[str, int] = {}

    @property
    def is_plain(self) -> bool:
        """Its partition is its queue and its QOS its class, whatever the policy has: nothing else is said."""
        return not self.names.account and not (self.names.partition and self.names.qos)

    def placed(self, known: KnownNames | None) -> BatchJob:
        """With the queue and class that a policy has for what it says. None: none is asked, since somebody says the queue."""
        flags = {flag: self.lines[flag] for flag in ("account", "partition", "qos") if flag in self.lines}
        spec, told = dict(self.document["spec"]), list(self.passed_over)
        if known is None:
            line = flags.get("account")
            told += [IgnoredDirective(line, "--account", "--queue says the queue")] if line else []
            return self._replace(passed_over=tuple(sorted(told)))
        queue, found = known.queue_of(self.names), known.class_of(self.names)
        spec |= {"queue": queue} if queue else {}
        if found:
            spec["priorityClass"] = found
        told += self._told(queue, found, flags)
        return self._replace(document={**self.document, "spec": spec}, passed_over=tuple(sorted(told)))

    def _told(self, queue: str, found: str, flags: Mapping[str, int]) -> Iterator[IgnoredDirective]:
        """What of the flags went into neither queue nor class."""
        account, partition, qos = self.names
        by_account = bool(queue) and queue in (account, f"{account}-users")
        if account and not by_account:
            why = f"the policy has no queue {account}" + (": the partition's is taken" if queue else "")
            yield IgnoredDirective(flags["account"], "--account", why)
        if partition and by_account and found not in (partition, f"{partition}-{qos}"):
            why = f"the queue is {queue}, that of the account, and the policy has no class for the partition"
            yield IgnoredDirective(flags["partition"], "--partition", why)
        if qos and found == partition:
            yield IgnoredDirective(flags["qos"], "--qos", f"the class is {found}, that of the partition")


def job_of(text: str, file: str, arguments: Sequence[str], submitter: Submitter) -> BatchJob:
    """The job, in no folder unless the script names one; raises ScriptError at the first line that asks for what can't be."""
    if len(text.encode()) > SCRIPT_BYTES_MAX:
        fix = "Put the larger part into files that the tasks read."
        raise ScriptError(1, f"the script has more than {SCRIPT_BYTES_MAX} bytes", fix)
    if "\r\n" in text:
        line = text[: text.index("\r\n")].count("\n") + 1
        raise ScriptError(line, "lines end as on Windows, and shells do not", f"Convert it: sed -i 's/\\r$//' {file}")
    said = _Said(tuple(directives(text)))
    gpus = _gpus(said)
    shape = {"cpu": str(_cpus(said, gpus)), **_memory(said, gpus), **gpus}
    called = said.text("job-name") or file.rpartition("/")[2]
    name = _name_of(called)
    tasks = _tasks(said)
    names = SlurmNames(*(_name_of(value) if (value := said.text(flag)) else "" for flag in _NAMING))
    passed_over = [*_flags_passed_over(said, name), *_export_passed_over(said, submitter), *unavailable_in(text)]
    spec = {
        "queue": said.text("partition") or names.account,
        "priorityClass": said.text("qos"),
        "taskGroups": [{"name": "task", "replicas": tasks.number, "shape": shape}],
        "topology": _spread(tasks),
        "timeLimit": said.read("time", lambda written: _time(amounts.seconds(written))),
        "timeLimitWarning": said.read("signal", _warning),
        "finishWithin": said.read("deadline", lambda written: _time(amounts.seconds_from_now(written))),
        "array": said.read("array", _array),
        "dependsOn": said.read("dependency", amounts.dependencies),
        "command": command_of(text, file, arguments),
        "workingDirectory": _folder(said, submitter),
        "env": {**_variables(said, called, tasks, submitter), **_exported(said, submitter)},
    }
    document = {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {field: value for field, value in spec.items() if value},
    }
    lines = {flag: found.line for flag in _NAMING if (found := said.find(flag))}
    return BatchJob(document, tuple(sorted(passed_over)), names, lines)


@dataclass(frozen=True, slots=True)
class _Said:
    """The flags of a script; of one that is said twice the last counts, as with sbatch."""

    flags: tuple[Directive, ...]

    def find(self, name: str) -> Directive | None:
        return next((flag for flag in reversed(self.flags) if flag.name == name), None)

    def text(self, name: str) -> str | None:
        flag = self.find(name)
        return flag.value if flag else None

    def read(self, name: str, how: Callable[[str], T]) -> T | None:
        """The value as `how` reads it; its ValueError becomes a ScriptError at the line."""
        flag = self.find(name)
        if flag is None:
            return None
        try:
            return how(flag.value)
        except ValueError as error:
            raise ScriptError(flag.line, f"--{name}: {error}", "See docs/slurm.md.") from error

    def number(self, name: str) -> int | None:
        return self.read(name, amounts.count)

    def only_one_of(self, asked: str, *names: str) -> None:
        """Raise ScriptError where two of the flags are there: sbatch takes one of them, too."""
        found = [flag for name in names if (flag := self.find(name))]
        if len(found) > 1:
            first, second = sorted(found)[:2]
            raise ScriptError(
                second.line, f"--{first.name} and --{second.name} both ask for {asked}", "Keep one of them."
            )


class _Tasks(NamedTuple):
    """How many, and how many of them one node has at most; None: as many as fit."""

    number: int
    per_node: int | None

    @property
    def sharing(self) -> int:
        """Among how many tasks what is said of a node is divided: one node, where no number of them is said."""
        return self.per_node or self.number


def _tasks(said: _Said) -> _Tasks:
    nodes, per_node, number = said.number("nodes"), said.number("ntasks-per-node"), said.number("ntasks")
    if number is None:
        number = (nodes or 1) * (per_node or 1)
    if per_node is None and nodes is not None:
        per_node = -(-number // nodes)
    return _Tasks(number, per_node)


def _spread(tasks: _Tasks) -> dict[str, Any] | None:
    if tasks.per_node is None or tasks.number == 1 or tasks.per_node >= tasks.number:
        return None
    return {"spread": {"level": "node", "maxPerDomain": tasks.per_node}}


def _cpus(said: _Said, gpus: Mapping[str, Any]) -> int:
    per_gpu = said.number("cpus-per-gpu")
    said.only_one_of("CPUs", "cpus-per-gpu", "cpus-per-task")
    return (said.number("cpus-per-task") or 1) if per_gpu is None else max(1, per_gpu * gpus.get("gpus", 0))


def _memory(said: _Said, gpus: Mapping[str, Any]) -> dict[str, str]:
    said.only_one_of("memory", "mem", "mem-per-cpu", "mem-per-gpu")
    per_node, per_cpu = said.read("mem", amounts.memory), said.read("mem-per-cpu", amounts.memory)
    per_gpu = said.read("mem-per-gpu", amounts.memory)
    if per_cpu is not None:
        return {"memory": str(per_cpu * _cpus(said, gpus))}
    if per_gpu is not None:
        return {"memory": str(per_gpu * gpus["gpus"])} if gpus.get("gpus") else {}
    return {} if not per_node else {"memory": str(per_node // _tasks(said).sharing)}


def _gpus(said: _Said) -> dict[str, Any]:
    """GPUs of one task, from whichever way they are asked for."""
    ways: dict[str, Callable[[str], amounts.GpuRequest | None]] = {
        "gpus-per-task": amounts.gpus, "gpus": amounts.gpus, "gpus-per-node": amounts.gpus, "gres": amounts.gres
    }  # fmt: skip
    asked = {way: found for way, how in ways.items() if (found := said.read(way, how)) is not None}
    if not asked:
        return {}
    (way, (number, kind)), *others = asked.items()
    flag = said.find(way)
    line = flag.line if flag else 1
    if others:
        raise ScriptError(line, f"--{way} and --{others[0][0]} both ask for GPUs", "Keep one of them.")
    tasks = _tasks(said)
    among = {"gpus-per-task": 1, "gpus": tasks.number}.get(way, tasks.sharing)
    if number % among:
        problem = f"--{way}: {number} GPUs can't be divided evenly among {among} tasks"
        raise ScriptError(line, problem, "Every task of a group has equally many: use --gpus-per-task.")
    return {"gpus": number // among, **({"gpuTypes": [kind]} if kind and number else {})}


def _array(written: str) -> dict[str, Any]:
    indices, percent, limit = written.partition("%")
    return {"indices": indices, **({"maxRunning": amounts.count(limit)} if percent else {})}


def _warning(written: str) -> dict[str, Any]:
    """The steps of a script can't be sent a signal; the script itself would die of one that it does not expect."""
    warned = amounts.warning_signal(written)
    return {"before": f"{warned.before_s}s", **({"signal": warned.signal} if warned.to_script else {})}


def _time(limit_s: int | None) -> str | None:
    return None if limit_s is None else f"{limit_s}s"


def _variables(said: _Said, name: str, tasks: _Tasks, submitter: Submitter) -> dict[str, str]:
    """What is the same in every task. What differs is set where the task begins: script.py."""
    per_task = said.number("cpus-per-task")
    return {
        "SLURM_JOB_NAME": name,
        "SLURM_SUBMIT_DIR": submitter.folder,
        **({"SLURM_JOB_PARTITION": said.text("partition") or ""} if said.text("partition") else {}),
        **({"SLURM_CPUS_PER_TASK": str(per_task)} if per_task else {}),
        **({"SLURM_NTASKS_PER_NODE": str(tasks.per_node)} if said.number("ntasks-per-node") else {}),
    }


def _exported(said: _Said, submitter: Submitter) -> dict[str, str]:
    found = {}
    for word in _export_words(said):
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
        elif name in submitter.environment and name not in ("ALL", "NONE"):
            found[name] = submitter.environment[name]
    return found


def _name_of(called: str) -> str:
    """The nearest name that a job may have."""
    stem = called.removesuffix(".sh")
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "job"


def _folder(said: _Said, submitter: Submitter) -> str | None:
    folder = said.text("chdir")
    return folder if folder is None or folder.startswith("/") else f"{submitter.folder}/{folder}"


def _export_words(said: _Said) -> list[str]:
    return [word for word in (said.text("export") or "").split(",") if word]


def _export_passed_over(said: _Said, submitter: Submitter) -> Iterator[IgnoredDirective]:
    flag = said.find("export")
    for word in _export_words(said) if flag else ():
        line = flag.line if flag else 1
        if word == "ALL":
            yield IgnoredDirective(line, "--export=ALL", "a task sees only what its job names: --export=NAME or --env")
        elif "=" not in word and word not in ("NONE", *submitter.environment):
            yield IgnoredDirective(line, f"--export={word}", "the variable is not set here")


def _flags_passed_over(said: _Said, name: str) -> Iterator[IgnoredDirective]:
    for flag in said.flags:
        known = FLAGS.get(flag.name, UNKNOWN)
        written = flag.name if flag.name.startswith("-") else f"--{flag.name}"
        if not known.becomes:
            yield IgnoredDirective(flag.line, written, known.why)
    called = said.find("job-name")
    if called is not None and called.value != name:
        why = f"the job is named {name}: names have lower-case letters, digits and hyphens"
        yield IgnoredDirective(called.line, f"--job-name={called.value}", why)
    yield from _half_followed(said)


def _half_followed(said: _Said) -> Iterator[IgnoredDirective]:
    """What a flag asks for beyond what it becomes."""
    nodes, memory, gres = said.find("nodes"), said.find("mem"), said.find("gres")
    by = said.find("deadline")
    if by is not None and not by.value.startswith("now"):
        why = "a script does not say the zone of a time: say --finish-by to `quorate submit`, or now+6hours"
        yield IgnoredDirective(by.line, f"--deadline={by.value}", why)
    warning, warned = said.find("signal"), said.read("signal", amounts.warning_signal)
    if warning is not None and warned is not None and not warned.to_script:
        why = "the request in QUORATE_REQUEST_FILE comes then, but no signal: say B: and trap it in the script"
        yield IgnoredDirective(warning.line, f"--signal={warning.value}", why)
    tasks = _tasks(said)
    if nodes is not None and tasks.number > 1 and tasks.per_node == tasks.number:
        yield IgnoredDirective(
            nodes.line, "--nodes", "tasks can't be kept on one node: an island is the closest there is"
        )
    if memory is not None and not said.read("mem", amounts.memory):
        yield IgnoredDirective(
            memory.line, "--mem", "all memory of a node can't be asked for without saying how much it is"
        )
    others = [part for part in gres.value.split(",") if part.partition(":")[0] != "gpu"] if gres else []
    if gres is not None and others:
        yield IgnoredDirective(gres.line, f"--gres={','.join(others)}", "of generic resources only GPUs are known")
