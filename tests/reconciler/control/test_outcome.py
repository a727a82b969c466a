"""What is said of a task that brought its job down."""

from __future__ import annotations

import pytest

from reconciler.lifecycle.jobs.outcome import describe, outcome_of
from reconciler.lifecycle.jobs.settlements import Fail
from reconciler.protocols.backend import MemoryUse, TaskStatus
from solver.model.cluster import NodeName
from solver.model.quantities import Instant, Memory
from solver.model.workload import JobName


def failed(memory: MemoryUse | None) -> TaskStatus:
    detail = "used 1.3Gi of 1Gi memory, and was ended for it" if memory and memory.exceeded else "exit code 137"
    return TaskStatus(
        JobName("job"), 1, "worker", 3, NodeName("n1"), "failed", Instant(0), 137, detail=detail, memory=memory
    )


def test_one_that_had_too_much_memory_is_told_from_one_that_was_killed() -> None:
    killed = "task worker/3 on n1 failed with exit code 137"
    assert describe(failed(None)) == describe(failed(MemoryUse(Memory(5), Memory(9)))) == killed
    greedy = MemoryUse(Memory(1_395_864_371), Memory(2**30), exceeded=True)
    assert describe(failed(greedy)) == f"{killed}: it used 1.3Gi of 1Gi memory, and was ended for it"


class Log:
    """Implements Logs: every task has written the same."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read_log(self, job: JobName, attempt: int, group: str, index: int, offset: int, limit: int) -> bytes:
        return self._content[offset : offset + limit]


@pytest.mark.parametrize(
    ("log", "told"), [(b"", "it failed"), (b"no such file\n", "it failed\nno such file"), (b"\n", "it failed")]
)
def test_the_last_lines_of_its_log_follow_if_there_are_any(log: bytes, told: str) -> None:
    outcome = outcome_of(Fail(JobName("job"), failed(None), "it failed"), Instant(0), Log(log))
    assert outcome.message == told
