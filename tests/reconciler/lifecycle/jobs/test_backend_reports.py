"""What is seen step by step, each time behind the cursor of the last look, is what one look at all of it shows."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable

from hypothesis import given
from hypothesis import strategies as st

from reconciler.lifecycle.jobs.backend_reports import BackendReports
from reconciler.protocols.backend import AttemptStopped, BackendChanges, Cursor, TaskLeft, TaskState, TaskStatus
from solver.model.cluster import Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory
from solver.model.workload import JobName

Entry = TaskStatus | TaskLeft | AttemptStopped | Node
NOW = Instant(1_000)


def task(job: str, attempt: int, index: int, state: TaskState, growth: int) -> TaskStatus:
    return TaskStatus(JobName(job), attempt, "worker", index, NodeName("n1"), state, NOW, growth=growth)


def left(job: str, attempt: int, index: int, growth: int) -> TaskLeft:
    return TaskLeft(JobName(job), attempt, "worker", index, growth, NOW)


def stopped(job: str, attempt: int) -> AttemptStopped:
    return AttemptStopped(JobName(job), attempt, NOW)


def node(name: str, *, ready: bool) -> Node:
    return Node(NodeName(name), "pool", Cpu(1_000), Memory(1), ready=ready)


JOBS, ATTEMPTS, INDICES = st.sampled_from(["a", "b"]), st.integers(1, 2), st.integers(0, 2)
STATES: st.SearchStrategy[TaskState] = st.sampled_from(["starting", "running", "succeeded", "failed"])
ENTRIES = st.one_of(
    st.builds(task, JOBS, ATTEMPTS, INDICES, STATES, st.integers(0, 2)),
    st.builds(left, JOBS, ATTEMPTS, INDICES, st.integers(0, 2)),
    st.builds(stopped, JOBS, ATTEMPTS),
    st.builds(node, st.sampled_from(["n1", "n2"]), ready=st.booleans()),
)


def key(entry: Entry) -> Hashable:
    """Of what an entry is the newest state."""
    if isinstance(entry, Node):
        return entry.name
    place = () if isinstance(entry, AttemptStopped) else (entry.group, entry.index)
    return type(entry), entry.job, entry.attempt, place


def changes(entries: Iterable[Entry], cursor: int) -> BackendChanges:
    """The newest of each, as a backend reports it."""
    newest = {key(entry): entry for entry in entries}.values()
    return BackendChanges(
        Cursor(cursor),
        tuple(entry for entry in newest if isinstance(entry, Node)),
        tuple(entry for entry in newest if isinstance(entry, TaskStatus)),
        tuple(entry for entry in newest if isinstance(entry, AttemptStopped)),
        tuple(entry for entry in newest if isinstance(entry, TaskLeft)),
    )


@given(st.lists(ENTRIES, max_size=20), st.lists(st.integers(0, 20), max_size=4))
def test_step_by_step_is_as_at_once(journal: list[Entry], looks: list[int]) -> None:
    cuts = sorted({0, *(min(look, len(journal)) for look in looks), len(journal)})
    seen = BackendReports.of(changes((), 0))
    for before, after in itertools.pairwise(cuts):
        seen = seen.after(changes(journal[before:after], after))
    at_once = BackendReports.of(changes(journal, cuts[-1]))
    assert sorted_tasks(seen) == sorted_tasks(at_once)
    assert list(seen.attempts) == list(at_once.attempts)
    assert (seen.nodes, seen.cursor) == (at_once.nodes, at_once.cursor)


def sorted_tasks(reports: BackendReports) -> object:
    """Whatever the order in which tasks of one attempt were told."""
    return {
        of: (sorted(known.tasks, key=lambda task: task.index), known.stopped, known.left)
        for of, known in reports.attempts.items()
    }
