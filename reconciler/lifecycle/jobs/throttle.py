"""Arrays that run only so many elements at a time: which of them may begin next, the lowest indices first. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from reconciler.model.job_record import ArrayElement, JobRecord
from solver.model.document import Document
from solver.model.workload import JobName


class Throttled(Document, frozen=True, tag_field="block", tag="throttled"):
    """Its array has as many elements running, or about to, as it may."""

    array: JobName
    running: int
    limit: int

    def __str__(self) -> str:
        return f"array {self.array} runs {self.running} of at most {self.limit} at a time; lower indices go first"


def throttled_elements(
    records: Iterable[JobRecord], holding: Collection[JobName], blocked: Collection[JobName]
) -> dict[JobName, Throttled]:
    """The elements that must wait for others of their array.

    `holding`: jobs with devices; `blocked`: jobs that wait for something else, and leave their turn to the next.
    """
    running: defaultdict[JobName, int] = defaultdict(int)
    waiting: defaultdict[JobName, list[tuple[ArrayElement, JobName]]] = defaultdict(list)
    for record in records:
        element = record.array
        if element is None or element.max_running is None:
            continue
        if record.name in holding:
            running[element.id] += 1
        elif record.outcome is None and not record.cancel_requested_by and record.name not in blocked:
            waiting[element.id].append((element, record.name))
    found: dict[JobName, Throttled] = {}
    for array, queue in waiting.items():
        limit = queue[0][0].max_running or 0
        queue.sort(key=lambda each: each[0].index)
        begin = max(0, limit - running[array])
        told = Throttled(array, running[array] + min(begin, len(queue)), limit)
        found |= dict.fromkeys((name for _, name in queue[begin:]), told)
    return found
