"""The lines of `quorate get`: a job each, and one for all elements of an array together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from reconciler.api.group_payloads import GroupView
from reconciler.api.payloads import JobView


class Folded(NamedTuple):
    """An array, shown by one of its elements and by how many are in each state."""

    name: str
    element: JobView
    counts: str


def folded(jobs: Iterable[JobView], group: Callable[[str], GroupView]) -> Iterator[JobView | Folded]:
    """The jobs in their order, an array where its first element is; `group` is asked where not all elements are among them."""
    jobs = tuple(jobs)
    states: dict[str, Counter[str]] = {}
    for job in jobs:
        if job.array is not None:
            states.setdefault(job.array.id, Counter())[job.state] += 1
    for job in jobs:
        if job.array is None:
            yield job
        elif (counted := states.pop(job.array.id, None)) is not None:
            whole = counted.total() == job.array.count
            yield Folded(job.array.id, job, _words(counted if whole else Counter(group(job.array.id).counts)))


def _words(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
