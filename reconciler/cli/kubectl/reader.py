"""Reads from the cluster that a kubeconfig names, with the user's own rights; what goes wrong becomes one clear error."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from reconciler.cli.exits import ExitCode
from reconciler.cli.kubectl.kubectl_client import ThroughKubectl
from reconciler.cli.kubectl.objects import SeenEvent, SeenEvents, SeenPod, SeenPods, SeenQueue, SeenQueues
from reconciler.cli.output import CommandFailedError
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.credentials import Credentials
from reconciler.kubernetes.client.kubeconfig import Kubeconfig, kubeconfig_paths
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.client.refusals import (
    CredentialsError,
    KubernetesError,
    NotAllowedError,
    NotFoundError,
    UnreachableError,
)
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import PODS
from reconciler.kubernetes.status.events import EVENTS
from reconciler.kubernetes.status.queue_status import QUEUES
from reconciler.model.clock import SystemClock
from reconciler.model.problem import did_you_mean

T = TypeVar("T")

QPS, BURST = 20, 40
PAGE = 500


class KubeContext(NamedTuple):
    """Which cluster, and which namespace where it matters; None: what the kubeconfig says."""

    context: str | None = None
    namespace: str | None = None


class ApiServerAccess(Protocol):
    """A way to the API server: our client, or kubectl."""

    async def get(self, path: str, kind: type[T], parameters: Mapping[str, str] | None = None) -> T:
        """One object, or one page of a list. Raises KubernetesError."""


class Reader:
    """Asks the API server. Its methods raise KubernetesError, and CommandFailedError for what is not there."""

    def __init__(self, api: ApiServerAccess, namespace: str) -> None:
        self._api = api
        self.namespace = namespace

    async def pod(self, name: str) -> SeenPod:
        """The pod of that name."""
        try:
            return await self._api.get(PODS.path(self.namespace, name), SeenPod)
        except NotFoundError as error:
            known = [pod.metadata.name for pod in await self.pods()]
            raise CommandFailedError(
                f"there is no pod {name} in namespace {self.namespace}", fix=did_you_mean(name, known)
            ) from error

    async def pods(self) -> tuple[SeenPod, ...]:
        """All pods of the namespace that are Quorate's."""
        found: list[SeenPod] = []
        parameters = {"limit": str(PAGE), "fieldSelector": f"spec.schedulerName={names.SCHEDULER}"}
        while True:
            page = await self._api.get(PODS.path(self.namespace), SeenPods, parameters)
            found += page.items
            if not page.metadata.next_page:
                return tuple(found)
            parameters["continue"] = page.metadata.next_page

    async def events(self, pod: SeenPod) -> tuple[SeenEvent, ...]:
        """What was told of a pod, the oldest first."""
        about = f"regarding.kind=Pod,regarding.name={pod.metadata.name},regarding.uid={pod.metadata.uid}"
        listed = await self._api.get(EVENTS.path(self.namespace), SeenEvents, {"fieldSelector": about})
        return tuple(sorted(listed.items, key=lambda event: event.last or ""))

    async def queues(self) -> tuple[SeenQueue, ...]:
        """All queues."""
        try:
            return (await self._api.get(QUEUES.path(), SeenQueues)).items
        except NotFoundError as error:
            fix = "Install deploy/kubernetes/crd-queues.yaml, or ask the server: `quorate queues`."
            raise CommandFailedError("the cluster has no queues.quorate.dev", fix=fix) from error


def read(where: KubeContext, story: Callable[[Reader], Awaitable[T]]) -> T:
    """What a story reads. Raises CommandFailedError, with the exit code for it."""

    async def session() -> T:
        async with _reader(where) as reader:
            return await story(reader)

    try:
        return asyncio.run(session())
    except CredentialsError as error:
        raise CommandFailedError(str(error), exit_code=ExitCode.NOT_AUTHORISED) from error
    except KubernetesError as error:
        raise _failed(error) from error


@asynccontextmanager
async def _reader(where: KubeContext) -> AsyncIterator[Reader]:
    """Through our client; where it does not take the kubeconfig, through kubectl, if there is one. Raises CredentialsError."""
    clock = SystemClock()
    try:
        kubeconfig = Kubeconfig(kubeconfig_paths(os.environ), clock, where.context)
    except CredentialsError:
        program = shutil.which("kubectl")
        if program is None:
            raise
        kubectl = ThroughKubectl(program, where.context)
    else:
        async with Api(Credentials(kubeconfig, clock), RateLimiter(QPS, BURST, clock), Random()) as api:  # noqa: S311  (jitter)
            yield Reader(api, where.namespace or kubeconfig.namespace())
        return
    yield Reader(kubectl, where.namespace or await kubectl.namespace())


def _failed(error: KubernetesError) -> CommandFailedError:
    if isinstance(error, UnreachableError):
        return CommandFailedError(str(error), fix="Name another context.", exit_code=ExitCode.SERVER_UNREACHABLE)
    if isinstance(error, NotAllowedError):
        fix = "Ask for the role `view` in this namespace, or name another context."
        return CommandFailedError(str(error), fix=fix, exit_code=ExitCode.NOT_AUTHORISED)
    return CommandFailedError(str(error))
