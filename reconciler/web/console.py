"""The pages of the console as routes of the API's application."""

from __future__ import annotations

from fastapi import APIRouter

from reconciler.access.session_keeper import SessionKeeper
from reconciler.api.services import Services
from reconciler.web.cluster_pages import ClusterPages
from reconciler.web.job_pages import JobPages
from reconciler.web.round_pages import RoundPages
from reconciler.web.sign_in import SignInRoutes
from reconciler.web.static_files import StaticRoutes
from reconciler.web.submit_pages import SubmitPages


def console_routers(services: Services, keeper: SessionKeeper) -> tuple[APIRouter, ...]:
    """All of them, for `ApiServer(routers=...)`."""
    # Before those of jobs: a job may have the name of a page, too.
    submit = SubmitPages(services).router
    pages = ClusterPages(services).router, submit, JobPages(services).router, RoundPages(services).router
    return SignInRoutes(keeper).router, StaticRoutes().router, *pages
