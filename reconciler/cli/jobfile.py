"""What `quorate submit` is given, a file or the short form, as one checked job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from reconciler.cli.exits import Exit
from reconciler.cli.inputs import invalid, unreadable
from reconciler.cli.output import CommandFailedError
from reconciler.documents.job import NamedJob, read_job
from reconciler.documents.problem import InvalidDocumentsError
from solver.world.cluster import LEVELS
from solver.world.document import API_VERSION, encode
from solver.world.workload import JobName, QueueName

_GROUP = "worker"
"""The one task group of a job in the short form."""


@dataclass(frozen=True, slots=True)
class ShortForm:
    """A job of one task group, as its options say it. Values are checked by the job's schema, not here."""

    gpus: int | None
    tasks: int | None
    types: tuple[str, ...]
    priority_class: str | None
    cpu: str | None
    memory: str | None
    time_limit: str | None
    topology: tuple[str, ...]
    env: tuple[str, ...]
    command: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """None of its options was given."""
        return all(value is None or value == () for value in astuple(self))

    def job(self, name: str | None, queue: str | None) -> NamedJob:
        """The job; raises CommandFailedError for what its schema does not allow, UsageError for what is missing."""
        missing = [
            what for what, given in (("--name", name), ("--queue", queue), ("-- COMMAND", self.command)) if not given
        ]
        if missing:
            raise click.UsageError(f"missing {', '.join(missing)} (or -f FILE)")
        document = {
            "apiVersion": API_VERSION,
            "kind": "Job",
            "metadata": {"name": name},
            "spec": self._spec(queue),
        }
        try:
            return read_job(encode(document), "the command line")
        except InvalidDocumentsError as error:
            told = "; ".join(problem.message for problem in error.problems)
            fix = " ".join(dict.fromkeys(problem.fix for problem in error.problems if problem.fix))
            raise CommandFailedError(told, fix=fix, exit_code=Exit.USAGE) from error

    def _spec(self, queue: str | None) -> dict[str, Any]:
        shape = {"gpus": self.gpus, "gpuTypes": list(self.types), "cpu": self.cpu, "memory": self.memory}
        return {
            "queue": queue,
            **_given(
                {
                    "priorityClass": self.priority_class,
                    "timeLimit": self.time_limit,
                    "topology": _topology_of(self.topology),
                }
            ),
            "taskGroups": [
                {"name": _GROUP, "replicas": 1 if self.tasks is None else self.tasks, "shape": _given(shape)}
            ],
            "command": list(self.command),
            "env": dict(_pairs(self.env, "--env", "NAME=VALUE")),
        }


def job_in_file(path: str, name: str | None, queue: str | None) -> NamedJob:
    """The job in a file (`-`: stdin), under another name or in another queue where they are given."""
    try:
        with click.open_file(path, "rb") as file:
            job = read_job(file.read(), "stdin" if path == "-" else path)
    except InvalidDocumentsError as error:
        raise invalid(error, Exit.ERROR) from error
    except OSError as error:
        raise unreadable(error, Path(path)) from error
    spec = msgspec.structs.replace(job.spec, queue=QueueName(queue)) if queue else job.spec
    return NamedJob(JobName(name or job.name), spec)


def _topology_of(written: Iterable[str]) -> dict[str, str | list[str]]:
    """`required=rack` and `preferred=island` as the fields they are; preferred several times is a list."""
    pairs = list(_pairs(written, "--topology", "required=LEVEL or preferred=LEVEL"))
    wishes: dict[str, str | list[str]] = dict(pairs)
    preferred = [level for name, level in pairs if name == "preferred"]
    if len(preferred) > 1:
        wishes["preferred"] = preferred
    if {name for name, _ in pairs} - {"required", "preferred"} or {level for _, level in pairs} - set(LEVELS):
        raise click.BadParameter(
            f"expected required=LEVEL or preferred=LEVEL with a level of {', '.join(LEVELS)}", param_hint="--topology"
        )
    return wishes


def _pairs(written: Iterable[str], option: str, expected: str) -> Iterable[tuple[str, str]]:
    """Each `NAME=VALUE`; raises a usage error for one that is not."""
    for pair in written:
        name, separator, value = pair.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"expected {expected}, got {pair!r}", param_hint=option)
        yield name, value


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that were given a value; 0 is one."""
    return {name: value for name, value in fields.items() if value or value == 0}
