"""What is said of a task that brought its job down."""

from __future__ import annotations

from reconciler.backend import MemoryUse, TaskStatus
from reconciler.jobs.outcome import describe
from solver.world.cluster import NodeName
from solver.world.quantities import Instant, Memory
from solver.world.workload import JobName


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
