"""The pages of the console as routes of the API's application."""

from __future__ import annotations

from fastapi import APIRouter

from reconciler.access.session_keeper import SessionKeeper
from reconciler.api.services import Services
from reconciler.web.cluster_pages import ClusterPages
from reconciler.web.job_pages import JobPages
from reconciler.web.latest_map import LatestMap
from reconciler.web.live_routes import LiveRoutes
from reconciler.web.round_pages import RoundPages
from reconciler.web.sign_in import SignInRoutes
from reconciler.web.static_files import StaticRoutes


def console_routers(services: Services, keeper: SessionKeeper) -> tuple[APIRouter, ...]:
    """All of them, for `ApiServer(routers=...)`."""
    latest = LatestMap(services)
    pages = ClusterPages(services, latest).router, JobPages(services).router, RoundPages(services).router
    live = LiveRoutes(services, latest, keeper.over)
    return SignInRoutes(keeper).router, StaticRoutes().router, live.router, *pages
