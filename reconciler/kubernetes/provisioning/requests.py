"""Requests for nodes as the API server has them, and how far each has come. Pure.

Written against the ProvisioningRequest of autoscaling.x-k8s.io/v1 (kubernetes/autoscaler, cluster-autoscaler); of what is read
here, v1beta1 has the same.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Meta, Wire
from solver.model.quantities import Instant
from solver.model.workload import JobName
from solver.policy.node_requests import Provisioning

KINDS: Final = (
    Resource("autoscaling.x-k8s.io/v1", "provisioningrequests"),
    Resource("autoscaling.x-k8s.io/v1beta1", "provisioningrequests"),
)
"""The newest first."""
TEMPLATES: Final = Resource("v1", "podtemplates")

_ENDS: Final = ("Failed", "CapacityRevoked", "BookingExpired")
"""Conditions after which a request gives nothing more, the most telling first."""

Stage = Literal["asked", "accepted", "provisioned", "over"]


class RequestCondition(Wire, frozen=True):
    """A condition of a request."""

    type: str
    status: str
    last_transition_time: str | None = None
    reason: str = ""
    message: str = ""


class _Status(Wire, frozen=True):
    conditions: tuple[RequestCondition, ...] = ()


class _Reference(Wire, frozen=True):
    name: str = ""


class _PodSet(Wire, frozen=True):
    pod_template_ref: _Reference = _Reference()
    count: int = 0


class _Spec(Wire, frozen=True):
    provisioning_class_name: str = ""
    pod_sets: tuple[_PodSet, ...] = ()


class ProvisioningRequest(Wire, frozen=True):
    """A request for nodes, of Quorate or of others."""

    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def is_ours(self) -> bool:
        """Quorate made it."""
        return names.PROVISIONING in self.metadata.labels and bool(self.job)

    @property
    def job(self) -> JobName:
        """The job that it is for."""
        return JobName(self.metadata.annotations.get(names.PROVISIONING_JOB, ""))

    @property
    def wants(self) -> str:
        """What that job asked for."""
        return self.metadata.annotations.get(names.PROVISIONING_FOR, "")

    @property
    def tries(self) -> int:
        """Which try it is, from 1 on."""
        return max(1, _number(self.metadata.annotations.get(names.PROVISIONING_TRY)))

    @property
    def nodes(self) -> int:
        """How many nodes it is taken to ask for."""
        return _number(self.metadata.annotations.get(names.PROVISIONING_NODES))

    @property
    def made_at(self) -> Instant:
        """When the server made it."""
        return _time(self.metadata.creation_timestamp) or Instant(0)

    @property
    def templates(self) -> tuple[str, ...]:
        """Its PodTemplates, in its namespace."""
        return tuple(known.pod_template_ref.name for known in self.spec.pod_sets)


class RequestStanding(NamedTuple):
    """How far a request has come, since when; `why`: what the autoscaler says. `until`: for how long what came of it is kept."""

    request: ProvisioningRequest
    stage: Stage
    at: Instant
    why: str
    until: Instant

    @property
    def name(self) -> str:
        """Namespace and name, as users know it."""
        return f"{self.request.metadata.namespace}/{self.request.metadata.name}"

    @property
    def is_open(self) -> bool:
        """Something may come of it yet."""
        return self.stage != "over"

    def again_at(self, rules: Provisioning) -> Instant:
        """When one that is over is followed by another."""
        return self.at.after(rules.again_after(self.request.tries))


def standing_of(request: ProvisioningRequest, rules: Provisioning, now: Instant) -> RequestStanding:
    """How far it has come by now. One whose nodes were kept for as long as policy says without the job's start is over."""
    said = {known.type: known for known in request.status.conditions if known.status == "True"}
    end = next((said[kind] for kind in _ENDS if kind in said), None)
    provisioned = said.get("Provisioned")
    since = _at(provisioned, request) if provisioned else request.made_at
    until = since.after(rules.hold_for)
    if end is not None:
        at = _at(end, request)
        return RequestStanding(request, "over", at, f"{end.type}: {_words(end)}", at)
    if provisioned is not None and until <= now:
        return RequestStanding(request, "over", until, f"its nodes were kept until {until}", until)
    if provisioned is not None:
        return RequestStanding(request, "provisioned", since, _words(provisioned), until)
    accepted = said.get("Accepted")
    waits = next((known for known in request.status.conditions if known.type == "Provisioned"), None)
    stage: Stage = "accepted" if accepted else "asked"
    at = _at(accepted, request) if accepted else request.made_at
    return RequestStanding(request, stage, at, _words(waits) if waits else "", until)


def _at(known: RequestCondition, request: ProvisioningRequest) -> Instant:
    return _time(known.last_transition_time) or request.made_at


def _words(known: RequestCondition) -> str:
    return ": ".join(part for part in (known.reason, known.message) if part)


def _time(written: str | None) -> Instant | None:
    try:
        return Instant.parse(written) if written else None
    except ValueError:
        return None


def _number(written: str | None) -> int:
    return int(written) if written and written.isdecimal() and len(written) <= 9 else 0
