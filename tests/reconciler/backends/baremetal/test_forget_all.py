"""Many attempts are forgotten at once: an agent that hangs is waited for once, not once for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, cast

import pytest

from reconciler.backends.baremetal import backend as baremetal
from reconciler.backends.baremetal.agent_server import AgentServer
from reconciler.backends.baremetal.backend import BareMetalBackend
from reconciler.backends.baremetal.fleet import Fleet
from reconciler.backends.baremetal.wire import Answer, Done, Forget, ToAgent
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import AttemptStopped, BackendChanges, BackendUnreachableError, Cursor, Epoch
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from solver.model.workload import JobName

WELL, HUNG = NodeName("well"), NodeName("hung")
A, B = JobName("a"), JobName("b")


class HalfDeaf:
    """A door behind which one agent answers at once, and the other never."""

    def __init__(self) -> None:
        self.heard: list[tuple[NodeName, ToAgent]] = []

    def ask(self, node: NodeName, message: Callable[[int], ToAgent]) -> Future[Answer]:
        self.heard.append((node, message(1)))
        answer: Future[Answer] = Future()
        if node == WELL:
            answer.set_result(Done(1))
        return answer


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long it was ready to wait each time, with nobody waiting for that."""
    found: list[float] = []

    def wait(asked: Iterable[Future[Any]], within_s: float) -> None:
        if any(not one.done() for one in asked):
            found.append(within_s)

    monkeypatch.setattr(baremetal, "wait", wait)
    return found


def test_who_hangs_is_waited_for_once_and_the_others_forget(waits: list[float]) -> None:
    door, fleet = HalfDeaf(), Fleet(SystemClock())
    for node in (WELL, HUNG):
        fleet.connected(node, "address")
        stopped = tuple(AttemptStopped(job, attempt, Instant(1)) for job in (A, B) for attempt in (1, 2))
        fleet.told(node, BackendChanges(Cursor(1), stopped=stopped[: 3 if node == WELL else 4]), whole=True)
    backend = BareMetalBackend(cast("AgentServer", door), fleet, lambda: ())
    backend.forget_all([], Epoch(1))  # the new epoch is announced, which the hung agent takes in no better
    waits.clear()
    unknown = backend.forget_all([(A, 1), (A, 2), (B, 1), (B, 2)], Epoch(1))
    assert unknown == dict.fromkeys(((A, 1), (A, 2), (B, 1), (B, 2)), "hung: no answer in 3 s")
    assert waits == [baremetal.ANSWERED_WITHIN_S]
    asked = [(node, said.job, said.attempt) for node, said in door.heard if isinstance(said, Forget)]
    assert len(asked) == 7
    assert fleet.nodes_with(A, 1) == {HUNG}
    with pytest.raises(BackendUnreachableError, match="hung: no answer"):
        backend.forget(A, 1, Epoch(1))
    assert backend.forget_all([(JobName("unheard"), 1)], Epoch(1)) == {}
