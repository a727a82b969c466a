"""The page of what GPUs do: how much is allocated, how active that is, which jobs hold idle GPUs, and how budgets stand."""

from __future__ import annotations

from itertools import islice
from typing import Final

from fastapi import APIRouter, Request, Response

from reconciler.access.rights import Rights
from reconciler.api.services import Services
from reconciler.model.budget import BudgetStanding
from reconciler.web.gpu_use_rows import budget_rows, idle_holders, queue_rows, type_rows
from reconciler.web.origins import document_link
from reconciler.web.page_route import PageRoute
from reconciler.web.pages import page

HOLDERS_MAX: Final = 50
QUEUES_MAX: Final = 200


class GpuUsePages:
    """The endpoint; `router` has it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.router = APIRouter(route_class=PageRoute, include_in_schema=False)
        self.router.add_api_route("/use", self.use)

    def use(self, request: Request) -> Response:
        """All of it, as of the last pass and the newest minute of each node."""
        services, rights = self._services, request.state.rights
        snapshot = services.snapshot()
        use = services.use.latest.of(snapshot)
        reported = services.work()
        queues = queue_rows(use.queues, reported)
        holders = idle_holders(use, snapshot, lambda queue, user: rights.may("see-job", queue, user))
        return page(
            request,
            "use.html",
            time=snapshot.time,
            types=type_rows(use.types, reported),
            queues=queues[:QUEUES_MAX],
            queues_left=max(0, len(queues) - QUEUES_MAX),
            holders=list(islice(holders, HOLDERS_MAX)),
            holders_left=sum(1 for _ in holders),
            has_mfu=any(row.work is not None for row in queues),
            is_measured=any(line.measured for line in use.types),
            is_told=services.use.past is not None,
            budgets=budget_rows(budgets_seen(services, rights), document_link),
        )


def budgets_seen(services: Services, rights: Rights) -> list[BudgetStanding]:
    """How those stand that a caller may see: of queues, and of users whose jobs they may see."""
    return [known for known in services.budgets() if known.queue or rights.may("see-job", None, known.user)]
