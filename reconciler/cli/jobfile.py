"""What `quorate submit` is given, a file, a script or the short form, as one checked job or pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from reconciler.cli.exits import ExitCode
from reconciler.cli.generated_names import made_up_name
from reconciler.cli.inputs import folder_here, invalid, unreadable
from reconciler.cli.output import CommandFailedError
from reconciler.documents.job import NamedJob, read_job
from reconciler.documents.pipeline import read_submission
from reconciler.model.pipelines import NamedPipeline
from reconciler.model.problem import InvalidDocumentsError, did_you_mean
from solver.model.cluster import LEVELS
from solver.model.document import API_VERSION, encode
from solver.model.quantities import Instant
from solver.model.workload import JobName, JobSpec, QueueName

Submission = NamedJob | NamedPipeline

_GROUP = "worker"
"""The one task group of a job in the short form."""

_OWN_FOLDER = "none"
"""What --chdir says for the folder of its own that each task has; a folder of that name is ./none."""


@dataclass(frozen=True, slots=True)
class ShortForm:
    """A job of one task group, as its options say it. Values are checked by the job's schema, not here."""

    gpus: int | None
    gpu_fraction: float | None
    gpu_memory: str | None
    mig: str | None
    devices: int | None
    tasks: int | None
    types: tuple[str, ...]
    priority_class: str | None
    cpu: str | None
    memory: str | None
    node_labels: tuple[str, ...]
    min_gpu_memory: str | None
    time_limit: str | None
    finish_by: Instant | None
    topology: tuple[str, ...]
    env: tuple[str, ...]
    secret: tuple[str, ...]
    image: str | None
    array: str | None
    depends_on: tuple[str, ...]
    pty: bool | None
    chdir: str | None
    command: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """None of its options was given."""
        return all(value is None or value == () for value in astuple(self))

    def job(self, name: str | None, queue: str | None) -> NamedJob:
        """The job; raises CommandFailedError for what its schema does not allow, UsageError for what is missing."""
        missing = [what for what, given in (("--queue", queue), ("-- COMMAND", self.command)) if not given]
        if missing:
            raise click.UsageError(f"missing {', '.join(missing)} (or -f FILE)")
        called = name or made_up_name(self.command)
        return _checked(_document(called, self._spec(queue)), "the command line", ExitCode.USAGE)

    def over(self, document: dict[str, Any], file: str, name: str | None, queue: str | None) -> NamedJob:
        """The job of a script, under another name, in another queue and with other wishes where options say so."""
        if any(value is not None for value in (*self._gpus().values(), self.tasks, self.cpu, self.memory)):
            raise click.UsageError("the script says what its tasks need: change its #SBATCH lines")
        if self.pty:
            raise click.UsageError("--pty is for -- COMMAND: a script runs without a terminal")
        own = _given({**self._wishes(), "queue": queue})
        folder = self._folder(document["spec"].get("workingDirectory", ""))
        env = {**document["spec"]["env"], **self._env()}
        spec = _given({**document["spec"], **own, "env": env, "workingDirectory": folder})
        spec["taskGroups"][0]["shape"] |= _given(self._where())
        if "queue" not in spec:
            raise click.UsageError("the script names no account or partition: give the job a --queue")
        return _checked(_document(name or document["metadata"]["name"], spec), file, ExitCode.ERROR)

    def _spec(self, queue: str | None) -> dict[str, Any]:
        asked = [f"--{option}" for option, given in self._ways().items() if given]
        if len(asked) > 1:
            # In the words of the line: the schema has those of documents.
            raise click.UsageError(f"{' and '.join(asked)} each say what GPUs a task has: keep one of them")
        shape = {
            **self._gpus(),
            **self._where(),
            "cpu": self.cpu,
            "memory": self.memory,
        }
        return {
            "queue": queue,
            **_given(self._wishes()),
            "taskGroups": [
                {"name": _GROUP, "replicas": 1 if self.tasks is None else self.tasks, "shape": _given(shape)}
            ],
            "command": list(self.command),
            **_given({"workingDirectory": self._folder()}),
            "env": self._env(),
            **({"type": "interactive", "terminal": True} if self.pty else {}),
        }

    def _ways(self) -> dict[str, Any]:
        """The options of which one alone says what GPUs a task has."""
        return {"gpus": self.gpus, "gpu-fraction": self.gpu_fraction, "gpu-memory": self.gpu_memory, "mig": self.mig}

    def _gpus(self) -> dict[str, Any]:
        """What its shape says of the GPUs of one task."""
        return {
            "gpus": self.gpus,
            "gpuFraction": self.gpu_fraction,
            "gpuMemory": self.gpu_memory,
            "mig": self.mig,
            "devices": self.devices,
        }

    def _where(self) -> dict[str, Any]:
        """What its shape says of GPUs and nodes that will do."""
        return {
            "gpuTypes": list(self.types),
            "nodeLabels": list(self.node_labels),
            "minGpuMemory": self.min_gpu_memory,
        }

    def _wishes(self) -> dict[str, Any]:
        return {
            "priorityClass": self.priority_class,
            "timeLimit": self.time_limit,
            "finishBy": None if self.finish_by is None else str(self.finish_by),
            "topology": _topology_of(self.topology),
            "array": _array_of(self.array),
            "container": {"image": self.image} if self.image is not None else None,
            "dependsOn": [
                {"condition": condition, "job": job}
                for condition, job in _pairs(
                    self.depends_on, "--depends-on", "CONDITION:JOB, such as afterok:prepare", ":"
                )
            ],
            "secrets": [
                {"env": variable, **_secret_of(written)}
                for variable, written in _pairs(self.secret, "--secret", "VARIABLE=SECRET[/KEY]")
            ],
        }

    def _folder(self, of_script: str = "") -> str:
        """As --chdir says, else the script, else here; "": each task in its own, as in a container, which does not have this."""
        if self.chdir is not None:
            return "" if self.chdir == _OWN_FOLDER else folder_here(self.chdir)
        return of_script or ("" if self.image is not None else folder_here())

    def _env(self) -> dict[str, str]:
        own = {"TERM": os.environ["TERM"]} if self.pty and "TERM" in os.environ else {}
        return {**own, **dict(_pairs(self.env, "--env", "NAME=VALUE"))}


def submission_in_file(path: str, name: str | None, queue: str | None) -> Submission:
    """The job or pipeline in a file (`-`: stdin), under another name or in another queue where they are given."""
    try:
        with click.open_file(path, "rb") as file:
            found = read_submission(file.read(), "stdin" if path == "-" else path)
    except InvalidDocumentsError as error:
        raise invalid(error, ExitCode.ERROR) from error
    except OSError as error:
        raise unreadable(error, Path(path)) from error
    called = JobName(name or found.name)
    if isinstance(found, NamedJob):
        return NamedJob(called, _in_queue(found.spec, queue))
    jobs = tuple(msgspec.structs.replace(job, spec=_in_queue(job.spec, queue)) for job in found.spec.jobs)
    return NamedPipeline(called, msgspec.structs.replace(found.spec, jobs=jobs))


def document_for(submission: Submission) -> bytes:
    """The document as the server takes it."""
    kind = "Job" if isinstance(submission, NamedJob) else "Pipeline"
    return encode(_document(submission.name, submission.spec, kind))


def _document(name: str | None, spec: object, kind: str = "Job") -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _checked(document: dict[str, Any], where: str, exit_code: ExitCode) -> NamedJob:
    """The job of a document that we have written ourselves, so that places in it say nothing."""
    try:
        return read_job(encode(document), where)
    except InvalidDocumentsError as error:
        told = "; ".join(problem.message for problem in error.problems)
        fix = " ".join(dict.fromkeys(problem.fix for problem in error.problems if problem.fix))
        place = where if exit_code == ExitCode.ERROR else ""
        raise CommandFailedError(told, place=place, fix=fix, exit_code=exit_code) from error


def _in_queue(spec: JobSpec, queue: str | None) -> JobSpec:
    return msgspec.structs.replace(spec, queue=QueueName(queue)) if queue else spec


def _secret_of(written: str) -> dict[str, str]:
    """`tls/key.pem` as the fields it is."""
    name, _, key = written.partition("/")
    return {"name": name, **({"key": key} if key else {})}


def _array_of(written: str | None) -> dict[str, Any] | None:
    """`0-99%10` as the fields it is."""
    if written is None:
        return None
    indices, percent, limit = written.partition("%")
    if percent and not limit.isdecimal():
        raise click.BadParameter(f"expected INDICES or INDICES%N, got {written!r}", param_hint="--array")
    return {"indices": indices, **({"maxRunning": int(limit)} if percent else {})}


def _topology_of(written: Iterable[str]) -> dict[str, str | list[str]]:
    """`required=rack` and `preferred=island` as the fields they are; preferred several times is a list."""
    pairs = list(_pairs(written, "--topology", "required=LEVEL or preferred=LEVEL"))
    wishes: dict[str, str | list[str]] = dict(pairs)
    preferred = [level for name, level in pairs if name == "preferred"]
    if len(preferred) > 1:
        wishes["preferred"] = preferred
    for name, level in pairs:
        if name not in ("required", "preferred"):
            message = f"expected required=LEVEL or preferred=LEVEL, got {name!r}. {did_you_mean(name, ('required', 'preferred'))}"
            raise click.BadParameter(message, param_hint="--topology")
        if level not in LEVELS:
            raise click.BadParameter(
                f"there is no level {level!r}. {did_you_mean(level, LEVELS)}", param_hint="--topology"
            )
    return wishes


def _pairs(written: Iterable[str], option: str, expected: str, between: str = "=") -> Iterable[tuple[str, str]]:
    """Each `NAME=VALUE`; raises a usage error for one that is not."""
    for pair in written:
        name, separator, value = pair.partition(between)
        if not name or not separator:
            raise click.BadParameter(f"expected {expected}, got {pair!r}", param_hint=option)
        yield name, value


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given a value; 0 is one."""
    return {name: value for name, value in fields.items() if value or value == 0}
