"""What GPUs do, over HTTP: now, with both utilisations; and in the past, of a node and of a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response

from reconciler.access.rights import Rights
from reconciler.analysis.showback.activity import whole_gpus_of
from reconciler.api.answers import answer, answers, refuses
from reconciler.api.cursors import CURSOR_MAX, cursor_of, link_to, number_of
from reconciler.api.gpu_payloads import GpuList, GpuView, JobUseHistory, JobUsePoint, NamedUse, NodeUse
from reconciler.api.problems import RequestRefusedError
from reconciler.api.services import Services
from reconciler.api.timeline import TimeWindow
from reconciler.api.timeline_routes import Written, kept_placements, window_of
from reconciler.control.use_summary import GpuNow, GpuUtilisation
from reconciler.model.gpu_use import spread_of, use_of
from reconciler.protocols.gpu_use import STEPS, GpuUses, UseStep
from reconciler.protocols.placements import NodePlacement
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Instant
from solver.model.workload import JobName

GPUS_MAX: Final = 10_000
POINTS_MAX: Final = 1_500
"""Stretches in one answer."""
_NAME_MAX: Final = 253

Name = Annotated[str, Query(max_length=_NAME_MAX)]
Since = Annotated[str, Query(alias="from", max_length=40)]


class GpuRoutes:
    """The endpoints; `router` has them all."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(tags=["cluster"])
        add = self.router.add_api_route
        add("/v1/gpus", self.gpus, responses=answers(GpuList))
        add("/v1/nodes/{node}/gpu-use", self.of_node, responses=answers(NodeUse, refuses(404)))
        add("/v1/jobs/{name}/gpu-use", self.of_job, responses=answers(JobUseHistory, refuses(404)))

    def gpus(
        self,
        request: Request,
        node: Name = "",
        queue: Name = "",
        job: Name = "",
        gpu_type: Annotated[str, Query(alias="gpuType", max_length=_NAME_MAX)] = "",
        limit: Annotated[int, Query(ge=1, le=GPUS_MAX)] = 1_000,
        cursor: Annotated[str, Query(max_length=CURSOR_MAX)] = "",
    ) -> Response:
        """GPUs with what they do and which jobs hold them, page by page, and what is allocated and active in all."""
        rights: Rights = request.state.rights
        now = self._services.use.latest.of(self._services.snapshot())
        asked = (
            gpu
            for gpu in now.gpus
            if node in ("", gpu.node) and gpu_type in ("", gpu.gpu_type)
            if not queue or any(each.queue == queue for each in gpu.holders)
            if not job or job in _visible(gpu, rights)
        )
        first = number_of(cursor) or 0
        # One more than wanted says whether there is another page.
        found = tuple(islice(asked, first, first + limit + 1))
        following = cursor_of(first + limit) if len(found) > limit else ""
        listed = GpuList(
            items=tuple(_view(gpu, rights) for gpu in found[:limit]),
            types=now.types,
            queues=tuple(_named(now.queues)),
            classes=tuple(_named(now.classes)),
            work=self._services.work(),
            next=following,
        )
        return answer(listed, headers=link_to(request, following))

    def of_node(
        self,
        node: Annotated[str, Path(max_length=_NAME_MAX)],
        step: UseStep = "minute",
        since: Since = "3h",
        to: Written = "",
    ) -> Response:
        """What the GPUs of a node did, by minutes, hours or days."""
        uses, window = _past(self._services), _window(since, to, step, self._services.clock.now())
        found = uses.of_nodes([NodeName(node)], step, window.start, window.end)
        return answer(NodeUse(node=NodeName(node), step=step, items=found))

    def of_job(
        self,
        name: Annotated[str, Path(max_length=_NAME_MAX)],
        step: UseStep = "minute",
        since: Since = "3h",
        to: Written = "",
    ) -> Response:
        """What the GPUs did that a job held, by minutes, hours or days: one spread over its GPUs for each."""
        uses, window = _past(self._services), _window(since, to, step, self._services.clock.now())
        placed = kept_placements(self._services).of_job(JobName(name))
        return answer(job_history(JobName(name), uses, placed, step, window))


def _past(services: Services) -> GpuUses:
    if services.use.past is None:
        told = "Where jobs are pods, what GPUs do is known only if Quorate is told where dcgm-exporter can be read."
        raise RequestRefusedError(404, "no-gpu-use", told, "Start it with --dcgm-prometheus or --dcgm-exporters.")
    return services.use.past


def _window(since: str, to: str, step: UseStep, now: Instant) -> TimeWindow:
    window = window_of(since, to, now)
    if window.end - window.start > STEPS[step] * POINTS_MAX:
        told = f"from: {since}: an answer has {POINTS_MAX} steps at most, and {step}s make more of that."
        raise RequestRefusedError(422, "invalid-parameter", told, "Ask for less time, or for longer steps.")
    return window


def _visible(gpu: GpuNow, rights: Rights) -> tuple[JobName, ...]:
    return tuple(each.job for each in gpu.holders if rights.may("see-job", each.queue, each.user))


def _view(gpu: GpuNow, rights: Rights) -> GpuView:
    use = use_of(gpu.record)
    minute, jobs = gpu.start if use else None, _visible(gpu, rights)
    return GpuView(gpu.gpu, gpu.node, gpu.gpu_type, gpu.healthy, bool(gpu.holders), jobs, minute, use)


def _named(lines: Mapping[Any, tuple[GpuUtilisation, ...]]) -> Iterator[NamedUse]:
    return (NamedUse(name, some) for name, some in lines.items())


def job_history(
    job: JobName, uses: GpuUses, placed: Iterable[NodePlacement], step: UseStep, window: TimeWindow
) -> JobUseHistory:
    """What the GPUs did that a job held whole, of all that it held."""
    held = list(_held(placed))
    means: dict[Instant, list[float]] = defaultdict(list)
    weighted = covered = 0.0
    nodes = {node for node, _, _, _ in held}
    past = {(each.node, each.gpu): each for each in uses.of_nodes(nodes, step, window.start, window.end)}
    by_place: dict[tuple[NodeName, DeviceId], list[tuple[Instant, Instant]]] = defaultdict(list)
    for node, gpu, begin, end in held:
        by_place[node, gpu].append((begin, end))
    for place, spans in by_place.items():
        for point in past[place].points if place in past else ():
            over = point.start.after(STEPS[step])
            active = point.use.active
            if active is not None and any(begin <= point.start and over <= end for begin, end in spans):
                means[point.start].append(active.mean)
                weight = 1 if step == "minute" else point.use.covered
                weighted, covered = weighted + weight * active.mean, covered + weight
    points = tuple(JobUsePoint(start, len(values), spread_of(values)) for start, values in sorted(means.items()))
    return JobUseHistory(job=job, step=step, active=round(weighted / covered, 2) if covered else None, points=points)


def _held(placed: Iterable[NodePlacement]) -> Iterator[tuple[NodeName, DeviceId, Instant, Instant]]:
    """GPUs that were held whole, and from when to when."""
    for each in placed:
        end = each.placement.until if each.placement.until is not None else Instant(2**62)
        for gpu in whole_gpus_of(each):
            yield each.node, gpu, each.placement.since, end
