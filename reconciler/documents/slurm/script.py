"""A batch script as a task: how it is started, and what its commands expect of Slurm and will not find.

A few lines of shell set what Slurm would have told it, then its interpreter runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reconciler.documents.slurm.directives import IgnoredDirective, ScriptError

_SHELLS = ("sh", "bash", "dash", "ksh", "zsh")

_PYTHON = re.compile(r"python[0-9.]*")

_TOLD = """\
export SLURM_JOB_ID="$QUORATE_JOB" SLURM_PROCID="$RANK" SLURM_LOCALID="$LOCAL_RANK" SLURM_NTASKS="$WORLD_SIZE"
export SLURM_NPROCS="$WORLD_SIZE" SLURMD_NODENAME="$QUORATE_NODE" SLURM_RESTART_COUNT="$((QUORATE_ATTEMPT - 1))"
if [ -n "${QUORATE_ARRAY_ID-}" ]; then
  export SLURM_ARRAY_JOB_ID="$QUORATE_ARRAY_ID" SLURM_ARRAY_TASK_ID="$QUORATE_ARRAY_INDEX"
  export SLURM_ARRAY_TASK_COUNT="$QUORATE_ARRAY_COUNT"
fi
"""
"""Facts of Slurm's manual ("sbatch", Output Environment Variables), from those of docs/jobs.md."""

SET = frozenset(
    (
        "SLURM_JOB_ID",
        "SLURM_JOB_NAME",
        "SLURM_JOB_PARTITION",
        "SLURM_SUBMIT_DIR",
        "SLURM_PROCID",
        "SLURM_LOCALID",
        "SLURM_NTASKS",
        "SLURM_NPROCS",
        "SLURM_NTASKS_PER_NODE",
        "SLURM_CPUS_PER_TASK",
        "SLURMD_NODENAME",
        "SLURM_RESTART_COUNT",
        "SLURM_ARRAY_JOB_ID",
        "SLURM_ARRAY_TASK_ID",
        "SLURM_ARRAY_TASK_COUNT",
    )
)
"""Those that a task may find: docs/slurm.md, Variables."""

_PROGRAMS = re.compile(r"(?:^|[\s;&|(`])(srun|scontrol|sbatch|sbcast)(?=\s)")

_VARIABLES = re.compile(r"\$\{?(SLURMD?_[A-Z0-9_]+)(?!:?[-A-Z0-9_])")
"""Not those with a value for where they are not set: ${NAME:-VALUE}."""

_NOT_THERE = "tasks have no programs of Slurm, unless their nodes or images do"

_WHY = {
    "srun": "the script runs in every task by itself: write what comes after it",
    **dict.fromkeys(("scontrol", "sbatch", "sbcast"), _NOT_THERE),
}


def command_of(text: str, file: str, arguments: Sequence[str]) -> list[str]:
    """The command of every task: sh for the variables, then the script's own interpreter on its text."""
    first, _, _ = text.partition("\n")
    words = first.removeprefix("#!").split()
    # A script that names env wants the program looked for, which is what running it by its name does.
    if words and words[0].rpartition("/")[2] == "env":
        words = [word for word in words[1:] if word != "-S"]
    if not words:
        raise ScriptError(1, "the first line names no program that runs the script", "Begin it with #!/bin/bash.")
    program = words[0].rpartition("/")[2]
    begin = ["sh", "-c", f'{_TOLD}exec "$@"', "sh", *words]
    if program in _SHELLS:
        return [*begin, "-c", text, file, *arguments]
    if _PYTHON.fullmatch(program):
        return [*begin, "-c", text, *arguments]
    fix = f"Use {', '.join(_SHELLS)} or python, and have it start {program}."
    raise ScriptError(1, f"a script for {program} can't travel in the job", fix)


def unavailable_in(text: str) -> Iterator[IgnoredDirective]:
    """Each program and variable once, at its first line."""
    seen = set(SET)
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for name in (*_PROGRAMS.findall(line), *_VARIABLES.findall(line)):
            if name not in seen and not re.search(rf"\b{name}=", text):
                yield IgnoredDirective(number, name, _WHY.get(name, "this variable is not set here"))
            seen.add(name)
