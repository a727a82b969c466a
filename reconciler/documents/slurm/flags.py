"""The flags of sbatch that are understood, those that are passed over with the reason, and what each becomes."""

from __future__ import annotations

from typing import Final, NamedTuple


class Flag(NamedTuple):
    """`becomes`: the field of the job; "" where the flag is passed over, and `why` says why. `value`: none, optional or needed."""

    short: str = ""
    becomes: str = ""
    why: str = ""
    value: str = "needed"


_LOGS = "what tasks write is kept by the server: `quorate logs`"
_PLACE = "which nodes a job gets is decided by policy and by its topology"
_NOTICE = "notifications are no part of a job"

FLAGS: Final[dict[str, Flag]] = {
    "job-name": Flag("J", "metadata.name"),
    "partition": Flag("p", "queue"),
    "qos": Flag("q", "priorityClass"),
    "ntasks": Flag("n", "taskGroups.replicas"),
    "nodes": Flag("N", "topology.spread"),
    "ntasks-per-node": Flag("", "topology.spread"),
    "cpus-per-task": Flag("c", "shape.cpu"),
    "cpus-per-gpu": Flag("", "shape.cpu"),
    "mem": Flag("", "shape.memory"),
    "mem-per-cpu": Flag("", "shape.memory"),
    "mem-per-gpu": Flag("", "shape.memory"),
    "gres": Flag("", "shape.gpus"),
    "gpus": Flag("G", "shape.gpus"),
    "gpus-per-node": Flag("", "shape.gpus"),
    "gpus-per-task": Flag("", "shape.gpus"),
    "time": Flag("t", "timeLimit"),
    "array": Flag("a", "array"),
    "dependency": Flag("d", "dependsOn"),
    "export": Flag("", "env"),
    "chdir": Flag("D", "workingDirectory"),
    "output": Flag("o", why=_LOGS),
    "error": Flag("e", why=_LOGS),
    "open-mode": Flag("", why=_LOGS),
    "account": Flag("A", why="a job is charged to its queue"),
    "signal": Flag("", "timeLimitWarning"),
    "requeue": Flag(
        "", why="whether a job is tried again is policy; one that was evicted waits again anyway", value="none"
    ),
    "no-requeue": Flag("", why="a job that was evicted always waits again", value="none"),
    "exclusive": Flag("", why="a node is shared by all that fits on it: ask for all of its GPUs", value="optional"),
    "constraint": Flag("C", why=_PLACE),
    "nodelist": Flag("w", why=_PLACE),
    "exclude": Flag("x", why=_PLACE),
    "reservation": Flag("", why="reservations are documents of the policy repository"),
    "mail-type": Flag("", why=_NOTICE),
    "mail-user": Flag("", why=_NOTICE),
    "comment": Flag("", why="nothing keeps it"),
    "verbose": Flag("v", why="it is for sbatch itself", value="none"),
    "quiet": Flag("Q", why="it is for sbatch itself", value="none"),
    "wait": Flag("W", why="say --wait to `quorate submit`", value="none"),
}
"""By their long names. docs/slurm.md has a line for each."""

BY_SHORT: Final = {flag.short: name for name, flag in FLAGS.items() if flag.short}
UNKNOWN: Final = Flag(why="it is not known here", value="unknown")
