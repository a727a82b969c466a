"""In which order pods are bound, how many at once, and what waits meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from reconciler.kubernetes.binder.binding import Binder, GangBinding, PodBinding
from reconciler.kubernetes.binder.binding_queue import PODS_AT_ONCE_MAX, pods_at_once
from reconciler.kubernetes.client.api import AT_ONCE_MAX, Api
from reconciler.kubernetes.client.concurrency import work_off
from reconciler.kubernetes.client.leader import Leadership
from reconciler.kubernetes.client.refusals import NotFoundError
from reconciler.model.clock import SystemClock
from reconciler.protocols.backend import Epoch
from solver.model.cluster import NodeName
from solver.model.workload import JobName

LEADER = Leadership("a", Epoch(1), float("inf"))


class Server:
    """Answers a while after it was asked; remembers the names of pods in the order they were asked for, and how many at once."""

    def __init__(self, gone: str = "") -> None:
        self._gone = gone
        self.order: list[str] = []
        self.at_once: list[int] = []
        self.tasks = 0
        self._open = 0

    async def create(self, path: str, *_: Any) -> dict[str, Any]:
        name = path.split("/")[-2]
        self.order.append(name)
        self._open += 1
        self.at_once.append(self._open)
        self.tasks = max(self.tasks, len(asyncio.all_tasks()))
        await asyncio.sleep(0)
        self._open -= 1
        if name == self._gone:
            raise NotFoundError("POST", 404, "NotFound", "")
        return {}

    async def get(self, *_: Any) -> None:
        raise NotFoundError("GET", 404, "NotFound", "")


def a_gang(name: str, size: int) -> GangBinding:
    pods = (PodBinding("ns", f"{name}-{number}", f"uid-{name}-{number}", "1", NodeName("n")) for number in range(size))
    return GangBinding(JobName(name), 1, tuple(pods))


def bind(server: Server, gangs: Sequence[GangBinding], at_once_max: int = PODS_AT_ONCE_MAX) -> list[list[str]]:
    """What became of each pod of each gang."""
    binder = Binder(cast("Api", server), lambda: LEADER, SystemClock(), at_once_max)
    outcomes = asyncio.run(binder.bind(gangs))
    assert [outcome.gang for outcome in outcomes] == list(gangs)
    assert not binder.underway
    return [[pod.answer for pod in outcome.pods] for outcome in outcomes]


@pytest.mark.parametrize("size", [1, 8, 600])
def test_what_waits_is_no_task_yet_and_no_connection_is_idle(size: int) -> None:
    server = Server()
    gangs = [a_gang(f"g{number}", size) for number in range(4_800 // size)]
    assert bind(server, gangs) == [["bound"] * size] * len(gangs)
    assert max(server.at_once) == AT_ONCE_MAX
    assert server.tasks <= AT_ONCE_MAX + 1, "besides those that send, the one that waits for them"
    if size < 600:
        assert server.at_once[:AT_ONCE_MAX] == list(range(1, AT_ONCE_MAX + 1)), "first pods of gangs as well"


def test_pods_of_gangs_that_are_begun_come_before_the_next_gang() -> None:
    server = Server()
    bind(server, [a_gang(f"g{number}", 3) for number in range(2 * AT_ONCE_MAX)])
    begun = server.order.index(f"g{AT_ONCE_MAX}-0")
    first = {f"g{number}-{pod}" for number in range(AT_ONCE_MAX) for pod in range(3)}
    assert set(server.order[:begun]) == first


def test_no_more_gangs_are_begun_than_there_is_room_for_and_a_larger_one_goes_alone() -> None:
    server = Server()
    sizes = {"a": 4, "b": 4, "c": 9, "d": 4}
    bind(server, [a_gang(name, size) for name, size in sizes.items()], at_once_max=8)
    order = [name.split("-")[0] for name in server.order]
    assert order[:2] == ["a", "b"]
    assert order[8:17] == ["c"] * 9
    assert order[17:] == ["d"] * 4


def test_the_others_of_a_gang_follow_its_first_pod_or_are_not_sent() -> None:
    server = Server(gone="b-0")
    gangs = [a_gang(name, 3) for name in "abc"]
    assert bind(server, gangs) == [["bound"] * 3, ["gone", "unsent", "unsent"], ["bound"] * 3]
    assert server.order[:3] == ["a-0", "b-0", "c-0"]
    assert sorted(server.order[3:]) == ["a-1", "a-2", "c-1", "c-2"]


@pytest.mark.parametrize(
    ("qps", "pods"),
    [(500.0, PODS_AT_ONCE_MAX), (20.0, 300), (0.01, 1)],
)
def test_no_more_is_begun_than_can_be_whole_in_half_of_its_time(qps: float, pods: int) -> None:
    assert pods_at_once(qps, roll_forward_s=30.0) == pods


def test_what_fails_ends_all_that_was_begun() -> None:
    ended: list[int] = []

    async def deed(number: int) -> None:
        try:
            await asyncio.sleep(0 if number == 2 else 3600)
            raise LookupError
        finally:
            ended.append(number)

    async def story() -> None:
        numbers = iter(range(10))
        with pytest.raises(ExceptionGroup) as failed:
            await work_off(lambda: next(numbers, None), deed, at_once_max=4)
        assert [type(one) for one in failed.value.exceptions] == [LookupError]

    asyncio.run(story())
    assert sorted(ended) == [0, 1, 2, 3]
