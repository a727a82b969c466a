"""What was held over time, over HTTP: of nodes, in queues, and how much of GPUs in steps."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from reconciler.api.answers import answer, answers, refuses
from reconciler.api.cursors import CURSOR_MAX, cursor_of, link_to, place_of
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.api.timeline import (
    STEPS_MAX,
    QueueUseOverTime,
    Timeline,
    TimeWindow,
    timeline_of_nodes,
    timeline_of_queues,
    use_over_time,
)
from reconciler.protocols.placements import Placements
from solver.model.cluster import NodeName
from solver.model.quantities import Duration, Instant
from solver.model.workload import QueueName
from solver.policy.policy import Policy

NODES_MAX: Final = 500
"""In one answer."""
_WRITTEN_MAX: Final = 40
_WIDEST: Final = Duration(5 * 366 * 86_400_000)

Written = Annotated[str, Query(max_length=_WRITTEN_MAX)]


class TimelineRoutes:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(tags=["cluster"])
        add = self.router.add_api_route
        add("/v1/timeline", self.timeline, responses=answers(Timeline, refuses(404)))
        add("/v1/usage", self.usage, responses=answers(QueueUseOverTime, refuses(404)))

    def timeline(
        self,
        request: Request,
        by: Literal["node", "queue"] = "node",
        node: Annotated[list[Annotated[str, Query(max_length=253)]] | None, Query(max_length=NODES_MAX)] = None,
        rack: Annotated[str, Query(max_length=253)] = "",
        queue: Annotated[str, Query(max_length=63)] = "",
        since: Annotated[str, Query(alias="from", max_length=_WRITTEN_MAX)] = "24h",
        to: Written = "",
        limit: Annotated[int, Query(ge=1, le=NODES_MAX)] = 50,
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """Which attempts held what of nodes, page by page, or in the queues right below one."""
        placements, window = kept_placements(self._services), window_of(since, to, self._services.clock.now())
        if by == "queue":
            policy, top = queue_asked(self._services, queue)
            return answer(timeline_of_queues(placements, request.state.rights, policy, top, window))
        names = sorted(map(NodeName, node)) if node else self._nodes(rack)
        after = place_of(cursor)
        names = [name for name in names if name > after]
        following = cursor_of(names[limit - 1]) if len(names) > limit else ""
        found = timeline_of_nodes(placements, request.state.rights, names[:limit], window)
        return answer(msgspec.structs.replace(found, next=following), headers=link_to(request, following))

    def usage(
        self,
        queue: Annotated[str, Query(max_length=63)] = "",
        since: Annotated[str, Query(alias="from", max_length=_WRITTEN_MAX)] = "7d",
        to: Written = "",
        step: Written = "",
    ) -> Response:
        """GPUs that the queues right below one held over time, by GPU type."""
        placements, window = kept_placements(self._services), window_of(since, to, self._services.clock.now())
        policy, top = queue_asked(self._services, queue)
        return answer(use_over_time(placements, policy, top, window, step_of(step, window)))

    def _nodes(self, rack: str) -> list[NodeName]:
        nodes = self._services.snapshot().nodes
        return [node.name for node in nodes if node.gpus and (not rack or (node.rack or node.name) == rack)]


def kept_placements(services: Services) -> Placements:
    """What is kept of the past. Raises RequestRefusedError where nothing is."""
    if services.placements is None:
        told = "Where another scheduler runs jobs, nothing here says what they held: placements are not kept."
        raise RequestRefusedError(404, "no-placements", told, "Ask the cluster's own monitoring.")
    return services.placements


def queue_asked(services: Services, queue: str) -> tuple[Policy, QueueName | None]:
    """The policy in force, and a queue in it; None: none was named. Raises RequestRefusedError for an unknown one."""
    _, policy = services.policy()
    if queue and all(each.name != queue for each in policy.queues):
        raise RequestRefusedError(404, "unknown-queue", f"There is no queue {queue}.", "List the queues to see them.")
    return policy, QueueName(queue) if queue else None


def window_of(since: str, to: str, now: Instant) -> TimeWindow:
    """From two times, or spans before now. Raises RequestRefusedError."""
    start, end = instant_of("from", since, now), instant_of("to", to, now) if to else now
    if not 0 <= start < end or end - start > _WIDEST:
        raise _wrong("from", f"{since}: it has to be before `to`, and by five years at most")
    return TimeWindow(start, end, now)


def step_of(written: str, window: TimeWindow) -> Duration | None:
    """The length of steps; None: none is stated. Raises RequestRefusedError."""
    if not written:
        return None
    try:
        step = Duration.parse(written)
    except ValueError as error:
        raise _wrong("step", str(error)) from error
    if not 0 < step <= _WIDEST or window.end - window.start > step * STEPS_MAX:
        raise _wrong("step", f"{written}: a window has {STEPS_MAX} of them at most, each of five years at most")
    return step


def instant_of(name: str, written: str, now: Instant) -> Instant:
    """A time, or a span before now, as the parameter of this name says it. Raises RequestRefusedError."""
    try:
        return now.after(-Duration.parse(written))
    except ValueError:
        pass
    try:
        return Instant.parse(written)
    except ValueError as error:
        raise _wrong(name, f"{error}, or a span before now such as 24h") from error


def _wrong(name: str, told: str) -> RequestRefusedError:
    return RequestRefusedError(422, "invalid-parameter", f"{name}: {told}.", "GET /v1/openapi.json has all parameters.")
