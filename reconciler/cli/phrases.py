"""What a job is, where it stands and how it ended, in the few words that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from reconciler.api.payloads import JobView
from reconciler.cli.times import local, span
from reconciler.control.use_summary import GpuUtilisation
from reconciler.lifecycle.jobs.idleness import idle_for
from reconciler.model.intervention_record import Intervention
from solver.model.amounts import PLACES, in_words
from solver.model.quantities import Instant, MilliGpu
from solver.model.shape import Shape
from solver.model.workload import JobSpec, TaskPlacement
from solver.plan.reason import count

_NODES_NAMED_MAX = 3
_REVISION_CHARACTERS = 12
"""Of a commit: what Git's own log shows of a repository of millions of objects."""


def size_of(spec: JobSpec) -> str:
    """`4 tasks, 32 GPUs`, or `3 tasks, 3 MIG instances`; an elastic gang: `4 tasks, 32 GPUs; at least 2 tasks, 16 GPUs`."""
    whole = _size([(group.replicas, group.shape) for group in spec.task_groups])
    least = [(group.least, group.shape) for group in spec.task_groups]
    return whole if sum(tasks for tasks, _ in least) == spec.tasks else f"{whole}; at least {_size(least)}"


def _size(groups: list[tuple[int, Shape]]) -> str:
    gpus = MilliGpu(sum(tasks * shape.cost for tasks, shape in groups))
    # What part of a GPU these are depends on the type that they get.
    instances = sum(tasks * shape.devices for tasks, shape in groups if shape.mig is not None)
    by_memory = sum(tasks * shape.devices for tasks, shape in groups if shape.gpu_memory is not None)
    parts = (
        count(sum(tasks for tasks, _ in groups), "task"),
        count(gpus.number, "GPU") if gpus or not (instances or by_memory) else "",
        count(instances, "MIG instance") if instances else "",
        count(by_memory, "part") + " of GPUs" if by_memory else "",
    )
    return ", ".join(part for part in parts if part)


def gpus_of(job: JobView) -> str:
    """Of all its tasks, and before them what it holds while that is less: `24/32`.

    Of MIG instances and parts by memory what it holds: before, it is not known of which type they will be.
    """
    held = MilliGpu(sum(task.gpus for task in job.tasks))
    shapes = [group.shape for group in job.spec.task_groups]
    if not all(shape.mig is None and shape.gpu_memory is None for shape in shapes):
        return str(held) if job.tasks else ""
    return f"{held}/{job.spec.gpus}" if 0 < len(job.tasks) < job.spec.tasks else str(job.spec.gpus)


def tasks_of(job: JobView) -> str:
    """How many tasks it has; `3/4` while it has fewer than it may."""
    return f"{len(job.tasks)}/{job.spec.tasks}" if 0 < len(job.tasks) < job.spec.tasks else str(job.spec.tasks)


def gpu_hours(gpu_seconds: Decimal) -> str:
    """Like `1,234.50`."""
    return f"{gpu_seconds / 3600:,.2f}"


def class_of(spec: JobSpec) -> str:
    """The priority class a job names."""
    return spec.priority_class or "(default)"


def shape_words(shape: Shape) -> str:
    """What one task needs: `8 GPUs (H100, else A100), 96 CPU cores, 1Ti memory`."""
    types = f" ({', else '.join(shape.gpu_types)})" if shape.gpu_types else ""
    parts = (
        f"{count(shape.gpus, 'GPU')}{types}" if shape.gpus else "",
        f"{_part(shape)}{types}" if shape.is_shared else "",
        f"{_instances(shape)}{types}" if shape.mig is not None else "",
        f"GPUs of at least {shape.min_gpu_memory}" if shape.min_gpu_memory is not None else "",
        f"{shape.cpu} CPU cores" if shape.cpu else "",
        f"{shape.memory} memory" if shape.memory else "",
        # Each pod takes a place: only more than that is worth a word.
        *(in_words(*each) for each in shape.resources.items() if each != (PLACES, 1)),
    )
    return ", ".join(part for part in parts if part) or "no resources of its own"


def _part(shape: Shape) -> str:
    """What it asks for where that is a part of GPUs."""
    each = "a GPU" if shape.devices == 1 else f"each of {shape.devices} GPUs"
    if shape.gpu_fraction is not None:
        return f"{shape.gpu_fraction} of {each}"
    return f"{shape.gpu_memory} of {each}'s memory" if shape.devices == 1 else f"{shape.gpu_memory} of memory of {each}"


def _instances(shape: Shape) -> str:
    return f"a MIG instance {shape.mig}" if shape.devices == 1 else f"{shape.devices} MIG instances {shape.mig}"


def devices_of(task: TaskPlacement) -> str:
    """The devices of a task: `n1/0, n1/1`, or `0.5 of n1/0`."""
    names = ", ".join(task.devices)
    if task.share is None:
        return names
    return f"{task.share} of {names}" if len(task.devices) == 1 else f"{task.share} of each of {names}"


def by_whom(intervention: Intervention) -> str:
    """`by ada until 2026-11-20 09:00:00 +01:00: ticket 4711`."""
    return f"by {intervention.author} until {local(intervention.until)}: {intervention.reason}"


def nodes_of(job: JobView) -> list[str]:
    """The nodes it holds something on, in the order of its tasks."""
    return list(dict.fromkeys(task.node for task in job.tasks))


def short_list(names: Iterable[str], named_max: int = _NODES_NAMED_MAX) -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    more = len(listed) - named_max
    return ", ".join(listed) if more <= 0 else f"{', '.join(listed[:named_max])} and {more} more"


def short_revision(revision: str) -> str:
    """A commit as people compare it."""
    return revision[:_REVISION_CHARACTERS]


def standing(job: JobView) -> str:
    """Where a live job runs, idle or not, or with which exit code an ended one ended; "" where neither says anything."""
    if job.outcome is None:
        return with_idleness(short_list(nodes_of(job)), job)
    return "" if job.outcome.exit_code is None else f"exit code {job.outcome.exit_code}"


def idle_words(job: JobView) -> str:
    """`idle for 12m of 30m`; "" of a job that does something, that may be idle, or of which it is not known what it does."""
    if job.idle_limit is None or job.activity is None or not idle_for(job.activity):
        return ""
    return f"idle for {span(idle_for(job.activity))} of {job.idle_limit}"


def with_idleness(words: str, job: JobView) -> str:
    """What is said of a job, and for how long it has been idle."""
    return "; ".join(filter(None, (words, idle_words(job))))


def state_line(job: JobView, now: Instant) -> str:
    """Its state, since when and in which attempt."""
    if job.outcome is not None:
        code = f" with exit code {job.outcome.exit_code}," if job.outcome.exit_code else ""
        return f"{job.state}{code} {span(now - job.outcome.at)} ago{_attempt(job.outcome.attempt)}"
    since = job.running_since or job.since
    if since is None and (job.attempt or job.state == "suspended"):  # It has not waited since it was submitted.
        after = f", after attempt {job.attempt}" if job.attempt else ""
        return f"{job.state}, submitted {span(now - job.submitted_at)} ago{after}"
    since = since or job.submitted_at
    return with_idleness(f"{job.state_word} for {span(now - since)}{_attempt(job.attempt)}", job)


def _attempt(number: int) -> str:
    return f", in attempt {number}" if number > 1 else ""


def active_words(line: GpuUtilisation) -> str:
    """`63%`, or `63% of 5/8` where not all GPUs are measured; "" where none is held, `-` where none is measured."""
    if not line.allocated:
        return ""
    if not line.measured:
        return "-"
    part = f" of {line.measured}/{line.allocated}" if line.measured < line.allocated else ""
    return f"{100 * line.active / line.measured:.0f}%{part}"
