"""Writes requests for nodes, and takes them back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from structlog.typing import FilteringBoundLogger

from reconciler.kubernetes.client.api import Api, Check
from reconciler.kubernetes.client.refusals import ConflictError, KubernetesError, NotFoundError
from reconciler.kubernetes.objects.resource import PODS, Resource
from reconciler.kubernetes.provisioning.decisions import Asking, Requested, TakingBack
from reconciler.kubernetes.provisioning.requests import TEMPLATES, ProvisioningRequest
from reconciler.kubernetes.provisioning.templates import name_of, request_of, template_of
from reconciler.model.clock import Clock
from solver.model.workload import JobName
from solver.plan.reason import count
from solver.policy.node_requests import Provisioning

REST_S: Final = 30.0
"""After a request could not be made, for one job, it is tried again so much later."""
UNSEEN_S: Final = 10.0
"""So long nothing more is asked for while the watch does not show what was: bounds are kept by what is seen."""
Note = Callable[[str, str, str], None]
"""Kind, subject and cause of a line on record."""


class NodeProvisioner:
    """What it remembers may be lost: names are the same for the same try, so that asking twice is harmless.

    `check` of every write raises NotLeaderError. `kind`: how the API server calls requests.
    """

    def __init__(
        self, api: Api, check: Check, kind: Callable[[], Resource], clock: Clock, note: Note, log: FilteringBoundLogger
    ) -> None:
        self._api = api
        self._check = check
        self._kind = kind
        self._clock = clock
        self._note = note
        self._log = log
        self._unseen: dict[tuple[str, str], float] = {}
        self._failed: dict[JobName, tuple[float, str]] = {}
        self._bounded: dict[JobName, str] = {}

    @property
    def held_up(self) -> Mapping[JobName, str]:
        """Why nodes are not asked for, by the jobs that wait for some."""
        return self._bounded | {job: f"it was refused: {why}" for job, (_, why) in self._failed.items()}

    def has_seen(self, there: Mapping[tuple[str, str], ProvisioningRequest]) -> bool:
        """Whether the watch shows all that was asked for lately."""
        now_s = self._clock.monotonic_s()
        self._unseen = {key: until for key, until in self._unseen.items() if key not in there and until > now_s}
        return not self._unseen

    async def settle(self, wanted: Requested, rules: Provisioning | None) -> int:
        """Make it so; how much was done. What fails is logged and tried again. Raises NotLeaderError."""
        self._bounded = dict(wanted.bounded)
        now_s = self._clock.monotonic_s()
        self._failed = {job: known for job, known in self._failed.items() if known[0] > now_s}
        done = 0
        for asking in wanted.asked if rules else ():
            if asking.job not in self._failed and rules is not None:
                done += await self._ask(asking, rules)
        for taken in wanted.taken_back:
            done += await self._take_back(taken)
        return done

    async def _ask(self, asking: Asking, rules: Provisioning) -> bool:
        kind = self._kind()
        try:
            pods = [await self._api.get(PODS.path(asking.namespace, pod), dict[str, Any]) for pod, _ in asking.pods]
        except NotFoundError:
            return False  # one of its pods has just gone
        except KubernetesError as error:
            return self._refused(asking, error, str(error))
        try:
            for number, sent in enumerate(pods):
                with suppress(ConflictError):  # made before, and its answer or its request did not come to be
                    template = template_of(asking, number, sent)
                    await self._api.create(TEMPLATES.path(asking.namespace), template, self._check)
            with suppress(ConflictError):
                request = request_of(asking, rules, kind)
                await self._api.create(kind.path(asking.namespace), request, self._check)
        except KubernetesError as error:
            why = "the cluster has no ProvisioningRequests" if isinstance(error, NotFoundError) else str(error)
            return self._refused(asking, error, why)
        name = name_of(asking)
        self._unseen[asking.namespace, name] = self._clock.monotonic_s() + UNSEEN_S
        told = (
            f"ProvisioningRequest {asking.namespace}/{name} asks for {count(asking.nodes, 'node')}, try {asking.tries}"
        )
        self._note("nodes-asked-for", asking.job, told)
        return True

    def _refused(self, asking: Asking, error: KubernetesError, why: str) -> bool:
        self._failed[asking.job] = self._clock.monotonic_s() + REST_S, why
        self._log.warning("nodes-not-asked-for", job=asking.job, error=str(error))
        return False

    async def _take_back(self, taken: TakingBack) -> bool:
        request = taken.request
        meta = request.metadata
        try:
            for name in request.templates:
                with suppress(NotFoundError):
                    await self._api.delete(TEMPLATES.path(meta.namespace, name), check=self._check)
            with suppress(NotFoundError):
                body = {"preconditions": {"uid": meta.uid}}
                await self._api.delete(self._kind().path(meta.namespace, meta.name), body, self._check)
        except KubernetesError as error:
            self._log.warning("request-not-taken-back", request=f"{meta.namespace}/{meta.name}", error=str(error))
            return False
        told = f"ProvisioningRequest {meta.namespace}/{meta.name} is taken back: {taken.why}"
        self._note("nodes-not-wanted", request.job, told)
        return True
