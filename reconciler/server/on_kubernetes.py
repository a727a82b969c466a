"""A control plane whose jobs are the pods of a Kubernetes cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from random import SystemRandom
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.backends.kubernetes.api import Api
from reconciler.backends.kubernetes.credentials import Credentials, CredentialsError, in_cluster
from reconciler.backends.kubernetes.kubeconfig import from_kubeconfig, kubeconfig_path
from reconciler.backends.kubernetes.pace import Pace
from reconciler.backends.kubernetes.refusals import KubernetesError
from reconciler.clock import Clock, SystemClock
from reconciler.control import LEASE
from reconciler.metrics import Metrics
from reconciler.optimiser import KillableOptimiser
from reconciler.optimiser.recording import solver_with
from reconciler.pods.connected import Connection, connected
from reconciler.pods.memory import Memory
from reconciler.pods.plane import PodPlane
from reconciler.pods.runner import PodRunner
from reconciler.pods.views import Logless, PodHoldings, PodJobs, SeenPlane
from reconciler.server.alerts import alerting
from reconciler.server.parts import Member, Parts
from reconciler.server.policy_side import policy_side
from reconciler.server.reporter import Reporter
from reconciler.server.services import services_of
from reconciler.server.settings import KubernetesSettings, Settings
from reconciler.server.told import ToldHistory
from reconciler.store.sql.store import open_store
from reconciler.token_file import read_or_make_token
from reconciler.alerts.figures import WebhookFigures

HOLDER: Final = "control-plane"
"""Of the store, which lies in a locked folder. Whose writes of the cluster are the leader's is said by the Lease."""


class KubernetesFailedError(Exception):
    """The API server can't be reached as configured, or keeps from Quorate what it needs. A person acts."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def credentials_of(settings: KubernetesSettings, clock: Clock) -> Credentials:
    """How to reach the API server. Raises CredentialsError."""
    if settings.kubeconfig is not None:
        return from_kubeconfig(settings.kubeconfig, clock)
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return in_cluster(os.environ, clock)
    return from_kubeconfig(kubeconfig_path(os.environ), clock)
