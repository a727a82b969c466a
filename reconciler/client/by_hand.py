"""What people do by hand, for programs: cordons, holds and boosts, each with a reason and an end."""

from __future__ import annotations

from urllib.parse import quote

from reconciler.api.payloads import InterventionAsked, InterventionList
from reconciler.client.transport import Transport
from reconciler.model.intervention_record import Intervention
from solver.model.document import decode, encode


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
