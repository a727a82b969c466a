"""What the commands of a script expect of Slurm and will not find: its programs, and variables that are not set."""

from __future__ import annotations

import re
from collections.abc import Iterator

from reconciler.documents.slurm.directives import IgnoredDirective

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


def missed(text: str) -> Iterator[IgnoredDirective]:
    """Each program and variable once, at its first line."""
    seen = set(SET)
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("#"):
            continue
        for name in (*_PROGRAMS.findall(line), *_VARIABLES.findall(line)):
            if name not in seen and not re.search(rf"\b{name}=", text):
                yield IgnoredDirective(number, name, _WHY.get(name, "this variable is not set here"))
            seen.add(name)
