"""What is left of a task once its command has ended: files of its secrets, its container, its control group."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from reconciler.supervisor import cgroup, container
from reconciler.supervisor.delivery import take_away
from reconciler.supervisor.taskfiles import ABORT


def clear(task: Mapping[str, Any]) -> Iterator[str]:
    """Nothing of the task runs any more, and these are not needed; what can't be removed is told, a sentence each."""
    if task["container"]:
        why = container.remove_container(task["container"])
        if why:
            yield f"its container {task['container']['name']} can't be removed: {why}. Remove it by hand"
    if task["secrets"] or task["container"]:
        try:
            take_away(".")
        except OSError as error:
            yield f"the files of its secrets can't be removed: {error}. Remove them by hand"
    try:
        cgroup.remove(task["cgroup"])
    except OSError as error:
        yield f"its control group can't be removed: {error}. Remove it by hand"


def why_lost() -> str:
    """Why the task was ended at once, though it was not to stop; "": it was not."""
    try:
        with open(ABORT, encoding="utf-8") as file:
            return str(json.load(file)["reason"])
    except FileNotFoundError:
        return ""


def ended_by_kernel(task: Mapping[str, Any]) -> bool:
    """The kernel has ended something of it, since all of it together had as much memory as its shape asks for."""
    if task["container"]:
        return container.ran_out_of_memory(task["container"])
    return cgroup.ran_out_of_memory(task["cgroup"])


def end_without_supervisor(task: Mapping[str, Any]) -> str:
    """Kill what descends from a task without its supervisor, where it can be found as a whole; "" when nothing of it is left
    there, else why not yet. Supervisors of earlier versions have given it neither a container nor a group. Raises OSError."""
    inside, group = task.get("container"), task.get("cgroup")
    if inside:
        why = container.remove_container(inside)
        if why:
            return f"its container {inside['name']} can't be removed: {why}"
    if not cgroup.kill(group):
        return "ending what is left of it"
    cgroup.remove(group)
    return ""
