"""What a task sees of the world: a small allow-listed base, what its job sets, and its place in its gang."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from reconciler.node.local.attempts import in_rank_order
from reconciler.node.local.folders import task_folder_name
from reconciler.node.local.gangfile import GANG, HOSTS, address_of
from reconciler.protocols.backend import GrowGang, StartGang
from reconciler.supervisor import taskfiles
from solver.model.cluster import DeviceId
from solver.model.quantities import MILLI_PER_GPU, Memory
from solver.model.workload import JobSpec, TaskGroup, TaskPlacement

INHERITED = ("PATH", "HOME", "LANG", "TMPDIR")
"""Of the control plane's own environment, which may hold its credentials, a task sees nothing else."""

_MIB = 2**20

_WITH_TERMINAL = {"TERM": "xterm-256color"}
"""What nearly every terminal of today understands; `quorate submit --pty` says which one it is."""

SIMULATED_GPUS: Final = "SIMULATED_GPUS"
"""A variable of jobs by which GPUs that are simulated do nothing, if it is `idle`: to see what a policy makes of that."""

IDLE = ("sleep", "infinity")
"""What a task does that has no command, until it is stopped."""

TASK_FOLDER = "QUORATE_TASK_FOLDER"
"""Marks every process of a task, wherever it moves, unless it clears its environment."""


def task_environments(
    order: StartGang | GrowGang,
    device_index: Mapping[DeviceId, int | str],
    master_port: int,
    device_memory: Mapping[DeviceId, Memory],
) -> Iterator[tuple[TaskPlacement, dict[str, str]]]:
    """Each task of an order with its environment, in the order of their ranks: groups as the job lists them, then index.

    Tasks that join a gang are told of it as it is with them; what the others see here can't be changed, so GANG_FILE is.
    """
    on_node: dict[str, int] = {}
    gang, ordered = tasks_by_rank(order), set(order.tasks)
    for rank, task in enumerate(gang):
        local_rank = on_node.get(task.node, 0)
        on_node[task.node] = local_rank + 1
        if task not in ordered:
            continue
        yield (
            task,
            {
                **(_inherited() if order.spec.container is None else {}),
                **(_WITH_TERMINAL if order.spec.terminal else {}),
                **order.spec.env,
                **order.environment,
                **(
                    _ranks(rank, local_rank, len(gang), address_of(order.meeting, gang[0].node), master_port)
                    if order.spec.launcher is None
                    else {}
                ),
                "CUDA_VISIBLE_DEVICES": _visible(order, task, device_index),
                "QUORATE_JOB": order.job,
                "QUORATE_ATTEMPT": str(order.attempt),
                "QUORATE_GROUP": task.group,
                "QUORATE_INDEX": str(task.index),
                "QUORATE_NODE": task.node,
                "QUORATE_DEVICES": ",".join(task.devices),
                **_share_of(task, device_memory),
            },
        )


def _inherited() -> dict[str, str]:
    """An image has its own."""
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def _ranks(rank: int, local_rank: int, world: int, master: str, master_port: int) -> dict[str, str]:
    """What torchrun and its like give; a launcher gives its own to what it starts, and these would only mislead that."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": master,
        "MASTER_PORT": str(master_port),
    }


def _visible(order: StartGang | GrowGang, task: TaskPlacement, device_index: Mapping[DeviceId, int | str]) -> str:
    """Its own devices; of a launcher those that the gang has on its machine, since all ranks there are its children."""
    if task.mig:
        return ",".join(str(device_index[device]) for device in task.devices if device in device_index)
    launches = group_of(order, task).launcher
    gang = [each for each in tasks_by_rank(order) if each.mig is None] if launches else [task]
    here = (device for each in gang for device in each.devices if device in device_index)
    return ",".join(dict.fromkeys(str(device_index[device]) for device in here))


def file_variables(folder: Path, spec: JobSpec) -> dict[str, str]:
    """Where a task finds its folder, what it is told, where it says how far it is, and the gang's members and hosts."""
    return {
        TASK_FOLDER: str(folder),
        "QUORATE_REQUEST_FILE": str(folder / taskfiles.REQUEST),
        "QUORATE_PROGRESS_FILE": str(folder / taskfiles.PROGRESS),
        "QUORATE_GANG_FILE": str(folder.parent / GANG),
        **({"QUORATE_HOST_FILE": str(folder.parent / HOSTS)} if spec.launcher else {}),
    }


def _share_of(task: TaskPlacement, device_memory: Mapping[DeviceId, Memory]) -> dict[str, str]:
    """What a task that shares its GPUs may use of each.

    The variables of MPS are read by its clients, where its daemon runs (NVIDIA, "Multi-Process Service", Environment Variables);
    nothing else heeds them. The GPU is the only one that a client sees, so its number there is 0.
    """
    if task.share is None:
        return {}
    share = {"QUORATE_GPU_SHARE": str(task.share)}
    if task.sharing == "mps":
        share["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{task.share / 10:g}"
        memory = min(device_memory.get(device, 0) for device in task.devices) * task.share // MILLI_PER_GPU
        if memory:
            share["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={memory // _MIB}M"
    return share


def tasks_by_rank(order: StartGang | GrowGang) -> list[TaskPlacement]:
    """The tasks of the whole gang in the order of their ranks."""
    gang = (*order.beside, *order.tasks) if isinstance(order, GrowGang) else order.tasks
    return in_rank_order(gang, order.spec)


def command_of(order: StartGang | GrowGang, task: TaskPlacement) -> tuple[str, ...]:
    """The group's own command, else the job's; where a launcher gives the work there may be neither."""
    return group_of(order, task).command or order.spec.command or IDLE


def others_of(order: StartGang | GrowGang, task: TaskPlacement) -> list[str]:
    """The folders, beside its own, of the tasks that must run before it begins: of a launcher all others of its machine."""
    if not group_of(order, task).launcher:
        return []
    others = (each for each in tasks_by_rank(order) if each != task)
    here = (each for each in others if order.meeting is None or each.node == task.node)
    return [task_folder_name(each.group, each.index) for each in here]


def group_of(order: StartGang | GrowGang, task: TaskPlacement) -> TaskGroup:
    """What the job says of the group of a task."""
    return next(group for group in order.spec.task_groups if group.name == task.group)
