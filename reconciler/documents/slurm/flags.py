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
_CORES = "which cores, sockets and links a task gets is for the node's runtime to say"
_CLOCK = "clocks are left as they are"
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
    "account": Flag("A", "queue"),
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
    "begin": Flag("b", why="a job starts as soon as it may: `quorate hold --until` keeps it until then"),
    "hold": Flag("H", why="a job starts as soon as it may: `quorate hold` keeps it for a while", value="none"),
    "deadline": Flag("", "finishWithin"),
    "time-min": Flag("", why="a time limit is not shortened to start sooner"),
    "nice": Flag("", why="the order of jobs is for classes and queues to say", value="optional"),
    "priority": Flag("", why="the order of jobs is for classes and queues to say"),
    "kill-on-invalid-dep": Flag("", why="a job whose dependency can't hold any more ends, and says so"),
    "licenses": Flag("L", why="nothing counts licences"),
    "clusters": Flag("M", why="one server has one cluster: `--server` says which"),
    "switches": Flag("", why=_PLACE),
    "contiguous": Flag("", why=_PLACE, value="none"),
    "spread-job": Flag("", why=_PLACE, value="none"),
    "use-min-nodes": Flag("", why=_PLACE, value="none"),
    "prefer": Flag("", why=_PLACE),
    "nodefile": Flag("F", why=_PLACE),
    "oversubscribe": Flag("s", why="a node is shared by all that fits on it", value="none"),
    "overcommit": Flag("O", why="a task has the CPUs that it asks for", value="none"),
    "ntasks-per-core": Flag("", why=_CORES),
    "ntasks-per-socket": Flag("", why=_CORES),
    "sockets-per-node": Flag("", why=_CORES),
    "cores-per-socket": Flag("", why=_CORES),
    "threads-per-core": Flag("", why=_CORES),
    "extra-node-info": Flag("B", why=_CORES),
    "hint": Flag("", why=_CORES),
    "distribution": Flag("m", why=_CORES),
    "cpu-bind": Flag("", why=_CORES),
    "mem-bind": Flag("", why=_CORES),
    "gpu-bind": Flag("", why=_CORES),
    "gres-flags": Flag("", why=_CORES),
    "core-spec": Flag("S", why="what the system keeps of a node is left out of its pool"),
    "mincpus": Flag("", why="a task asks for its CPUs: --cpus-per-task"),
    "tmp": Flag("", why="disk is asked for in `resources` of a Job document"),
    "cpu-freq": Flag("", why=_CLOCK),
    "gpu-freq": Flag("", why=_CLOCK),
    "profile": Flag("", why="`quorate top` and `gpus` show what a job uses"),
    "acctg-freq": Flag("", why="`quorate top` and `gpus` show what a job uses"),
    "input": Flag("i", why="tasks have no input: name the file in the command"),
    "no-kill": Flag("k", why="a gang that loses a node is tried again as its retry policy says", value="optional"),
    "reboot": Flag("", why="nodes are not rebooted for a job", value="none"),
    "get-user-env": Flag("", why="a task sees only what its job names: --export=NAME or --env", value="optional"),
    "propagate": Flag("", why="limits of the shell are those of the node's agent", value="optional"),
    "wckey": Flag("", why="nothing keeps it"),
    "parsable": Flag("", why="say `-o json` to `quorate submit`", value="none"),
    "container": Flag("", why="say the image in `container` of a Job document"),
    "wait": Flag("W", why="say --wait to `quorate submit`", value="none"),
}
"""By their long names. docs/slurm.md has a line for each."""

BY_SHORT: Final = {flag.short: name for name, flag in FLAGS.items() if flag.short}
UNKNOWN: Final = Flag(why="it is not known here", value="unknown")
