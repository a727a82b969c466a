"""Runs a control plane until it is told to stop or fails, and takes it apart again."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

import msgspec
from structlog.typing import FilteringBoundLogger

from reconciler.access.token_file import token_source
from reconciler.api.guard import is_loopback
from reconciler.api.metrics_server import MetricsServer
from reconciler.api.payloads import Status
from reconciler.api.server import ApiServer
from reconciler.connections.limits import ConnectionLimits, api_limits
from reconciler.control.garbage_collection import seldom
from reconciler.server.api_guard import ApiDoors, doors_of
from reconciler.server.crew import Crew, told_by_signals, with_restarts
from reconciler.server.local_cluster import parts_on_this_machine
from reconciler.server.parts import Parts
from reconciler.server.secret_status import SecretStatus
from reconciler.server.settings import MetricsSettings, Settings
from reconciler.web.console import console_routers

SWITCH_S: Final = 0.0005
"""A thread that waits for the interpreter is given it after so long, not after 5 ms: while a round computes, a request that
asks the store ten times would wait ten times."""

NO_COOKIE: Final = "the API speaks plain HTTP beyond this machine, and the cookie of the console's sessions needs HTTPS"
COOKIE_FIX: Final = "put a proxy with TLS before it, and name its address with --external-url https://HOST"


class ServerEndedError(Exception):
    """The API stopped serving, though it was not asked to."""


def serve(settings: Settings, log: FilteringBoundLogger) -> None:
    """Run until SIGTERM or SIGINT. What runs goes on when it ends, and the next start on the same folder finds it.

    Raises FolderUnusableError, StoreUnusableError, UnsafeUrlError, TokenFileError, InsecureBindingError, AddressError,
    ConnectionLimitsError, UnsafeSecretsError, IdentityError, AllowedSignersError, WebhookSecretError, ClientSecretError; and
    whatever ended a thread.
    """
    seldom()
    sys.setswitchinterval(SWITCH_S)
    # Better found wrong before anything is opened.
    limits = limits_of(settings)
    with ExitStack() as closing:
        closing.enter_context(settings.folder.locked())
        parts = _with_secrets(_with_transactions(_parts(settings, log, closing)))
        doors = doors_of(settings, parts.services.access, parts.store.sessions)
        api = closing.enter_context(_api(settings, limits, parts, doors, log))
        if settings.metrics is not None:
            metrics = closing.enter_context(_metrics(settings.metrics, parts))
            log.info("listening-for-metrics", url=metrics.url, authentication=settings.metrics.token is not None)
        crew = Crew()
        with told_by_signals(crew.dismiss):
            state, authentication = str(settings.folder.path), doors.guard.token is not None
            log.info("listening", url=api.url, state=state, authentication=authentication)
            if not is_loopback(settings.host) and not settings.external_url:
                log.warning("console", problem=NO_COOKIE, fix=COOKIE_FIX)
            for member in parts.members:
                crew.start(member.name, with_restarts(member, log))
            crew.wait(lambda: api.alive and parts.store.database.failure is None)
            log.info("stopping", tasks=parts.ending)
        for member in parts.members:
            member.stop()
        crew.join()
        if parts.store.database.failure is not None:
            # A request met it, and the loop not yet: its connection may still live on what it has in memory.
            raise parts.store.database.failure
        if not api.alive:
            raise ServerEndedError(f"{api.url}: the API stopped serving. See the log above; start again")
    log.info("stopped")


def _with_transactions(parts: Parts) -> Parts:
    """What a user decides, and the event that says so, are one write."""
    return replace(parts, services=replace(parts.services, together=parts.store.database.together))


def _with_secrets(parts: Parts) -> Parts:
    """Status and metrics say which files with secrets can't be used, wherever they are read."""
    secrets, status = SecretStatus(), parts.services.status
    parts.services.metrics.add(secrets)

    def told() -> Status:
        found = status()
        return msgspec.structs.replace(found, conditions=(*found.conditions, *secrets.conditions()))

    return replace(parts, services=replace(parts.services, status=told))


def limits_of(settings: Settings) -> ConnectionLimits:
    """How many connections the API takes. Raises ConnectionLimitsError."""
    asked = settings.connections
    return api_limits(asked.connections_max, asked.per_peer_max, beside_agents=settings.agents is not None)


def _api(
    settings: Settings,
    limits: ConnectionLimits,
    parts: Parts,
    doors: ApiDoors,
    log: FilteringBoundLogger,
) -> ApiServer:
    return ApiServer(
        parts.services,
        doors.guard,
        settings.host,
        settings.port,
        limits=limits,
        timeouts=settings.connections.timeouts,
        log=log,
        routers=console_routers(parts.services, doors.keeper, doors.flow, settings.external_url),
    )


def _metrics(on: MetricsSettings, parts: Parts) -> MetricsServer:
    # Better found wrong now than by the first scrape.
    token = token_source(on.token) if on.token is not None else None
    return MetricsServer(parts.services.metrics.text, on.host, on.port, token)


def _parts(settings: Settings, log: FilteringBoundLogger, closing: ExitStack) -> Parts:
    if settings.slurm is not None:
        from reconciler.server.slurm_cluster import parts_beside_slurm

        return parts_beside_slurm(settings, settings.slurm, log, closing)
    if settings.kubernetes is None:
        return parts_on_this_machine(settings, log, closing)
    # Its libraries are an extra that need not be there.
    from reconciler.server.kubernetes_cluster import parts_on_kubernetes

    return parts_on_kubernetes(settings, settings.kubernetes, log, closing)
