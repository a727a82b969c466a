"""What programs ask of a server beside jobs: agents, alerts, interventions, following Git, the past."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

from reconciler.analysis.showback.statement import ShowbackBy
from reconciler.api.agent_payloads import AgentList, AgentToken, AgentTokenAsked
from reconciler.api.alert_payloads import SampleList, WebhookList
from reconciler.api.audit_payloads import AuditEventList, AuditPage
from reconciler.api.gpu_payloads import JobUseHistory, NodeUse
from reconciler.api.payloads import InterventionAsked, InterventionList, RecordedJobList
from reconciler.api.policy_payloads import (
    ApprovalAsked,
    ApprovalList,
    FreshPlan,
    LookAsked,
    PlanAccepted,
    PlanAsked,
    SuspensionAsked,
    SuspensionList,
)
from reconciler.api.showback_payloads import Showback
from reconciler.api.timeline import QueueUseOverTime, Timeline
from reconciler.client.transport import Transport
from reconciler.model.audit import CHAINS, AuditEntry, ChainName
from reconciler.model.envelope import Envelope
from reconciler.model.git_record import Approval, Suspension
from reconciler.model.intervention_record import Intervention
from reconciler.protocols.gpu_use import UseStep
from solver.model.document import decode, encode
from solver.model.quantities import Instant

_STATEMENT_S: Final = 900.0


class AgentCalls:
    """Every method raises ServerUnreachableError, NotAuthorisedError or ApiError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def all(self) -> AgentList:
        """The nodes that have, had or may get an agent."""
        return decode(self._transport.call("GET", "/v1/agents"), AgentList)

    def token(self, node: str, until: str = "") -> AgentToken:
        """A token with which one agent may join as this node, once: until a span from now or a time, an hour unless stated."""
        asked = encode(AgentTokenAsked(until))
        return decode(
            self._transport.call("POST", f"{_agent_path(node)}/token", content=asked, repeatable=False), AgentToken
        )

    def revoke(self, node: str) -> AgentList:
        """Let no certificate or token of this node count any more."""
        return decode(self._transport.call("POST", f"{_agent_path(node)}/revoke"), AgentList)


def _agent_path(node: str) -> str:
    return f"/v1/agents/{_quoted(node)}"


class AlertCalls:
    """Every method raises ServerUnreachableError, NotAuthorisedError or ApiError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def webhooks(self) -> WebhookList:
        """How the webhooks of all AlertPolicies stand."""
        return decode(self._transport.call("GET", "/v1/alerts"), WebhookList)

    def send_sample(self, policy: str) -> SampleList:
        """Send a sample to each webhook of an AlertPolicy, and say what came of it."""
        path = f"/v1/alerts/{_quoted(policy)}/test"
        return decode(self._transport.call("POST", path, repeatable=False), SampleList)


class ByHand:
    """`until` is a span from now (`4h`), a time, or "" for as long as is usual. Repeating any of these is harmless.

    Every method raises ServerUnreachableError, NotAuthorisedError or ApiError.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def cordon(self, node: str, reason: str, until: str = "") -> Intervention:
        """Let nothing new start on a node."""
        return self._begin(f"nodes/{_quoted(node)}/cordon", reason, until)

    def uncordon(self, node: str) -> Intervention | None:
        """End it: returns what was in force, if anything was."""
        return self._release(f"nodes/{_quoted(node)}/cordon")

    def hold(self, job: str, reason: str, until: str = "") -> Intervention:
        """Let a job not begin."""
        return self._begin(f"jobs/{_quoted(job)}/hold", reason, until)

    def release(self, job: str) -> Intervention | None:
        """End a job's hold."""
        return self._release(f"jobs/{_quoted(job)}/hold")

    def hold_queue(self, queue: str, reason: str, until: str = "") -> Intervention:
        """Let no job of a queue, or of those below it, begin."""
        return self._begin(f"queues/{_quoted(queue)}/hold", reason, until)

    def release_queue(self, queue: str) -> Intervention | None:
        """End a queue's hold."""
        return self._release(f"queues/{_quoted(queue)}/hold")

    def boost(self, job: str, reason: str, until: str = "") -> Intervention:
        """Let a job start before the others of its queue, SLO class and rank that wait."""
        return self._begin(f"jobs/{_quoted(job)}/boost", reason, until)

    def release_boost(self, job: str) -> Intervention | None:
        """End a job's boost."""
        return self._release(f"jobs/{_quoted(job)}/boost")

    def newest(self, limit: int = 100, cursor: str = "") -> InterventionList:
        """What was ever done by hand, newest first; `next` is the cursor of the page after this one."""
        params: dict[str, str | int] = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        return decode(self._transport.call("GET", "/v1/interventions", params=params), InterventionList)

    def _begin(self, path: str, reason: str, until: str) -> Intervention:
        asked = encode(InterventionAsked(reason, until))
        return decode(self._transport.call("PUT", f"/v1/{path}", content=asked), InterventionList).items[0]

    def _release(self, path: str) -> Intervention | None:
        return next(iter(decode(self._transport.call("DELETE", f"/v1/{path}"), InterventionList).items), None)


def _quoted(name: str) -> str:
    return quote(name, safe="")


class AuditCalls:
    """Every method raises ServerUnreachableError, NotAuthorisedError or ApiError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def events(
        self,
        *,
        who: str = "",
        what: Iterable[str] = (),
        subject: str = "",
        since: str = "",
        to: str = "",
        limit: int = 100,
        cursor: str = "",
    ) -> AuditEventList:
        """What happened, newest first; `next` is the cursor of the page after this one."""
        stated = _given({"who": who, "subject": subject, "from": since, "to": to, "limit": limit, "cursor": cursor})
        params = {**stated, "what": list(what)}
        return decode(self._transport.call("GET", "/v1/audit/events", params=params), AuditEventList)

    def page(self, chain: ChainName, cursor: str = "") -> AuditPage:
        """The next links of a chain, with what their records are."""
        params = _given({"chain": chain, "cursor": cursor})
        return decode(self._transport.call("GET", "/v1/audit", params=params), AuditPage)

    def entries(self) -> Iterator[AuditEntry]:
        """Both chains whole, one after the other."""
        for chain in CHAINS:
            page = self.page(chain)
            yield from page.items
            while page.next:
                page = self.page(chain, page.next)
                yield from page.items


class FollowingCalls:
    """Every method raises ServerUnreachableError, NotAuthorisedError or ApiError. Repeating any of them is harmless."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def approve(self, revision: str, reason: str) -> Approval:
        """Accept the revision that is held now (at least 7 digits of its name), for what it is held for."""
        asked = encode(ApprovalAsked(revision, reason))
        answered = self._transport.call("POST", "/v1/policy/approve", content=asked)
        return decode(answered, ApprovalList).items[0]

    def approvals(self, limit: int = 100) -> tuple[Approval, ...]:
        """What was ever accepted, newest first."""
        answered = self._transport.call("GET", "/v1/policy/approvals", params={"limit": limit})
        return decode(answered, ApprovalList).items

    def accept_plan(self, envelope: Envelope, reason: str) -> PlanAccepted:
        """Accept what a saved plan says of a revision, merged or not yet. A stale one is an ApiError of code `stale-plan`."""
        asked = encode(PlanAsked(envelope, reason))
        return decode(self._transport.call("POST", "/v1/policy/plans", content=asked), PlanAccepted)

    def fresh_plan(self) -> FreshPlan:
        """What the revision that is held would do. An ApiError of code `not-planned` where none is, or none was planned."""
        return decode(self._transport.call("GET", "/v1/policy/plan"), FreshPlan)

    def suspend(self, reason: str, until: str = "") -> Suspension:
        """Stop following: for a span (`4h`), until a time, or, with "", until a user resumes."""
        asked = encode(SuspensionAsked(reason, until))
        answered = self._transport.call("PUT", "/v1/policy/suspension", content=asked)
        return decode(answered, SuspensionList).items[0]

    def resume(self) -> Suspension | None:
        """Follow again: returns what was in force, if anything was."""
        answered = self._transport.call("DELETE", "/v1/policy/suspension")
        return next(iter(decode(answered, SuspensionList).items), None)

    def look(self) -> Instant:
        """Have Git looked at now. A status with a `looked_at` not before what this returns has the outcome."""
        return decode(self._transport.call("POST", "/v1/policy/reconcile"), LookAsked).at


class PastCalls:
    """Every method raises ServerUnreachableError, NotAuthorisedError or ApiError."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def page(self, cursor: str = "", limit: int = 200) -> RecordedJobList:
        """A page of the newest jobs with their attempts; `next` is the cursor of the one after it."""
        params: dict[str, str | int] = {"limit": limit, **({"cursor": cursor} if cursor else {})}
        return decode(self._transport.call("GET", "/v1/history", params=params), RecordedJobList)

    def pages(self) -> Iterator[RecordedJobList]:
        """All of them, newest jobs first."""
        page = self.page()
        yield page
        while page.next:
            page = self.page(page.next)
            yield page

    def timeline(self, since: str = "24h", to: str = "", cursor: str = "", **chosen: str | int) -> Timeline:
        """What was held of nodes or in queues, a page of it, from and to a time or a span before now. `chosen`: docs/api.md."""
        stated = {"from": since, "to": to, "cursor": cursor, **chosen}
        return decode(self._transport.call("GET", "/v1/timeline", params=_given(stated)), Timeline)

    def usage(self, queue: str = "", since: str = "7d", to: str = "", step: str = "") -> QueueUseOverTime:
        """GPUs that the queues right below one held over time; without a queue, those that have no parent."""
        stated = {"queue": queue, "from": since, "to": to, "step": step}
        return decode(self._transport.call("GET", "/v1/usage", params=_given(stated)), QueueUseOverTime)

    def showback(self, by: ShowbackBy = "queue", since: str = "7d", to: str = "", charges: str = "") -> Showback:
        """What became of all GPU time, and what each queue, user, class, job or GPU type had of it. `charges`: docs/api.md.

        It is worked out when it is asked for: a month of a large cluster takes minutes.
        """
        asked = _given({"by": by, "from": since, "to": to, "charges": charges})
        return decode(self._transport.call("GET", "/v1/showback", params=asked, silence_s=_STATEMENT_S), Showback)

    def gpu_use_of_node(self, node: str, step: UseStep = "minute", since: str = "3h", to: str = "") -> NodeUse:
        """What the GPUs of a node did."""
        stated = {"step": step, "from": since, "to": to}
        return decode(self._transport.call("GET", f"/v1/nodes/{_quoted(node)}/gpu-use", params=_given(stated)), NodeUse)

    def gpu_use_of_job(self, job: str, step: UseStep = "minute", since: str = "3h", to: str = "") -> JobUseHistory:
        """What the GPUs did that a job held."""
        stated = {"step": step, "from": since, "to": to}
        path = f"/v1/jobs/{_quoted(job)}/gpu-use"
        return decode(self._transport.call("GET", path, params=_given(stated)), JobUseHistory)


def _given(stated: Mapping[str, str | int]) -> dict[str, str | int]:
    return {name: value for name, value in stated.items() if value != ""}
