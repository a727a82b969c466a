"""What to change when a task ran out of memory: how much it used, what to ask for, and whether the cluster has it."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.lifecycle.jobs.retries import GPU_MEMORY_SIGNS
from reconciler.protocols.backend import TaskStatus
from solver.model.cluster import GpuType, Node
from solver.model.quantities import Memory
from solver.model.workload import JobSpec, TaskGroup
from solver.plan.reason import count

HEADROOM = 1.25
"""More than the most that was seen: use was cut off there, so it is not known how much more it would have been."""

_GI = 2**30


def memory_advice(task: TaskStatus, spec: JobSpec, log: str, nodes: Iterable[Node]) -> str:
    """Sentences for the job's owner. `nodes`: as declared."""
    group = next(group for group in spec.task_groups if group.name == task.group)
    nodes = tuple(nodes)
    if any(sign in log for sign in GPU_MEMORY_SIGNS):
        return _about_gpus(task, group, nodes)
    return _about_the_node(task, group, nodes)


def _about_the_node(task: TaskStatus, group: TaskGroup, nodes: tuple[Node, ...]) -> str:
    limit = group.shape.memory
    if task.memory is None:
        asked = f"it asked for {limit}" if limit else "its shape asks for none"
        return f"How much memory it used is not known ({asked}). Ask for more `memory`, or let each task do less."
    wanted = nice(Memory(int(task.memory.peak * HEADROOM)))
    # Of one that was ended for it, how it ended says what it used.
    asked = f" of the {limit} that it asked for" if limit else ""
    used = "" if task.memory.exceeded else f"It used {rounded_memory(task.memory.peak)}{asked}. "
    fit = [node for node in nodes if node.memory >= wanted and _is_of(node, group)]
    if fit:
        return f"{used}Ask for `memory: {wanted}` in group {group.name}: {count(len(fit), 'node')} can have that."
    most = max((node.memory for node in nodes if _is_of(node, group)), default=Memory(0))
    return f"{used}No node has {wanted}: the largest has {rounded_memory(most)}. Let each task do less."


def _about_gpus(task: TaskStatus, group: TaskGroup, nodes: tuple[Node, ...]) -> str:
    own = next((node for node in nodes if node.name == task.node), None)
    otherwise = "use a smaller batch size, gradient checkpointing, or more GPUs for each copy of the model"
    if own is None or not own.gpus:
        return f"Its GPU had no memory left: {otherwise}."
    had = own.gpus[0].memory
    larger = {node.gpu_type: node.gpus[0].memory for node in nodes if node.gpus and node.gpus[0].memory > had > 0}
    if group.shape.gpu_memory is not None or group.shape.gpu_fraction is not None or group.shape.mig is not None:
        return f"Its part of a GPU had no memory left: ask for a larger part, or {otherwise}."
    if larger:
        return f"Its {own.gpu_type} had no memory left ({rounded_memory(had)}): {otherwise}; or ask for {_smallest(larger)}."
    return f"Its {own.gpu_type} had no memory left, and the cluster declares no GPU with more: {otherwise}."


def _smallest(larger: dict[GpuType, Memory]) -> str:
    memory, gpu_type = min((memory, gpu_type) for gpu_type, memory in larger.items())
    return f"{gpu_type} ({rounded_memory(memory)})"


def _is_of(node: Node, group: TaskGroup) -> bool:
    """The node is of a kind that the group takes."""
    return not group.shape.gpu_types or node.gpu_type in group.shape.gpu_types


def nice(memory: Memory) -> Memory:
    """Rounded up to what a person would write: whole Gi, by 8 from 64 on and by 64 from 512 on; below 1 Gi by 128 Mi."""
    steps = ((512 * _GI, 64 * _GI), (64 * _GI, 8 * _GI), (_GI, _GI))
    step = next((step for least, step in steps if memory > least), _GI // 8)
    return Memory(-(-memory // step) * step)


def rounded_memory(memory: Memory) -> str:
    """In Gi with one decimal, or in whole Mi below 1 Gi: exact bytes tell a reader nothing."""
    return f"{memory / _GI:.1f}Gi".replace(".0Gi", "Gi") if memory >= _GI else f"{memory // 2**20}Mi"
