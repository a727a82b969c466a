"""The pages of the console as routes of the API's application."""

from __future__ import annotations

from fastapi import APIRouter

from reconciler.access.code_flow import CodeFlow
from reconciler.access.session_keeper import SessionKeeper
from reconciler.api.services import Services
from reconciler.web.cluster_pages import ClusterPages
from reconciler.web.gpu_use_pages import GpuUsePages
from reconciler.web.health_pages import HealthPages
from reconciler.web.intervention_pages import InterventionPages
from reconciler.web.job_pages import JobPages
from reconciler.web.latest_map import LatestMap
from reconciler.web.live_routes import LiveRoutes
from reconciler.web.memo import PassMemo
from reconciler.web.node_pages import NodePages
from reconciler.web.node_sight import NodeSights
from reconciler.web.past import PastReader
from reconciler.web.policy_pages import PolicyPages
from reconciler.web.queue_use_pages import QueueUsePages
from reconciler.web.round_pages import RoundPages
from reconciler.web.sign_in import SignInRoutes
from reconciler.web.static_files import StaticRoutes
from reconciler.web.submit_pages import SubmitPages
from reconciler.web.time_pages import TimePages


def console_routers(
    services: Services, keeper: SessionKeeper, flow: CodeFlow, external_url: str = ""
) -> tuple[APIRouter, ...]:
    """All of them, for `ApiServer(routers=...)`. `external_url`: the origin of this server from outside; "": none is known."""
    sights, latest, memo = NodeSights(services), LatestMap(services), PassMemo(services)
    past = PastReader(services, memo)
    return (
        SignInRoutes(keeper, flow, external_url).router,
        StaticRoutes().router,
        LiveRoutes(services, latest, keeper.over).router,
        # What is done to jobs by hand has paths of its own before that of the verbs.
        InterventionPages(services, sights).router,
        ClusterPages(services, latest).router,
        # Before those of jobs: a job may have the name of a page, too.
        SubmitPages(services).router,
        JobPages(services).router,
        RoundPages(services).router,
        PolicyPages(services).router,
        HealthPages(services, sights).router,
        NodePages(services, sights).router,
        QueueUsePages(services, past).router,
        GpuUsePages(services).router,
        TimePages(services, sights, past, memo).router,
    )
