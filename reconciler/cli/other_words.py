"""What is typed by habit, from other programs or by a slip, and what it is called here."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Final

import click

CALLED_HERE: Final = {
    **dict.fromkeys(("kill", "delete", "rm", "stop", "scancel", "qdel"), "cancel"),
    **dict.fromkeys(("ls", "list", "ps", "jobs", "squeue", "qstat"), "get"),
    **dict.fromkeys(("show", "info", "events", "inspect"), "describe"),
    **dict.fromkeys(("sbatch", "qsub", "create", "start"), "submit"),
    **dict.fromkeys(("srun", "salloc", "shell"), "submit --pty"),
    **dict.fromkeys(("exec", "ssh", "connect"), "attach"),
    **dict.fromkeys(("release", "unhold"), "hold --release"),
    **dict.fromkeys(("lint", "check"), "validate"),
    **dict.fromkeys(("serve", "server", "up"), "run"),
    "cat": "logs",
    "diff": "plan",
    "drain": "cordon",
    "fairshare": "queues --users",
    "login": "token",
    "quota": "queues",
    "sacct": "history jobs",
    "sinfo": "nodes",
    "sshare": "queues --users",
    "sync": "reconcile",
    "tail": "logs --follow",
    "usage": "showback",
    "version": "--version",
}
"""Commands by what they are called elsewhere."""

KIND_SHOWN_BY: Final = {"jobs": "get", "nodes": "nodes", "queues": "queues", "gpus": "gpus", "rounds": "rounds"}
"""Commands by what they show, for who names a kind as with kubectl."""

_CHOICE: Final = re.compile(r"'([^']+)' is not one of ('[^']+'(?:, '[^']+')*)")
_NUMBER: Final = re.compile(r"is not a valid (integer|float)(?: range)?")
_NO_ARGUMENT: Final = {
    "nodes": "`quorate nodes` shows all of them, with the jobs on each.",
    "plan": "Write --head {word} for a revision.",
    "queues": "`quorate queues` shows all of them; `quorate get --queue {word}` the jobs of one.",
    "run": "It starts the control plane; a job is started by `quorate submit --queue QUEUE -- {word} ...`.",
    "status": "It says how the control plane stands; of a job say `quorate describe {word}`.",
    "top": "It shows all jobs; of one say `quorate describe {word}`.",
}
"""What is meant by a word behind a command that takes none."""


def command_meant(written: str, commands: list[str]) -> str:
    """The command that is meant by one that there is not: as it is called elsewhere, else the nearest; "": none is near."""
    nearest = get_close_matches(written, commands, n=1)
    return CALLED_HERE.get(written) or (nearest[0] if nearest else "")


def argument_meant(command: str, words: list[str]) -> str:
    """What is meant by words behind a command that takes none; "": that is not known."""
    return _NO_ARGUMENT[command].format(word=words[0]) if command in _NO_ARGUMENT and words else ""


def in_words(error: click.UsageError) -> str:
    """What click says of it, without the names that it has for numbers, and with the nearest of several choices."""
    told = error.format_message()
    choice = _CHOICE.search(told)
    nearest = get_close_matches(choice[1], re.findall(r"'([^']+)'", choice[2]), n=1) if choice else []
    told = _NUMBER.sub(lambda found: "is no whole number" if found[1] == "integer" else "is no number", told)
    return f"{told} Did you mean {nearest[0]}?" if nearest else told
