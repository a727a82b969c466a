"""How nodes are asked of an autoscaler for jobs that wait for nothing else: which way, how many, and for how long they are kept."""

from __future__ import annotations

from solver.model.document import Document
from solver.model.quantities import Duration

ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""The provisioning class of which all nodes of a request come, or none."""


_NAMES = {
    "class_name": "class", "max_requests": "maxRequests", "max_nodes": "maxNodes", "hold_for": "holdFor",
    "retry_after": "retryAfter", "max_retry_after": "maxRetryAfter", "valid_for": "validFor",
}  # fmt: skip


class Provisioning(Document, frozen=True, rename=_NAMES):
    """`after`: how long a job waits for nodes before they are asked for. At most `max_requests` requests are open, for at most
    `max_nodes` nodes. Nodes that come are kept for the job that asked for `hold_for`. A request that failed is made again
    `retry_after` later, twice as late each time, `max_retry_after` at the latest. `valid_for`: how long the autoscaler tries."""

    class_name: str = ATOMIC
    after: Duration = Duration(60_000)
    max_requests: int = 4
    max_nodes: int = 32
    hold_for: Duration = Duration(1_800_000)
    retry_after: Duration = Duration(120_000)
    max_retry_after: Duration = Duration(3_600_000)
    valid_for: Duration | None = None

    def again_after(self, tries: int) -> Duration:
        """How long after its end the request that follows so many tries is made."""
        return Duration(min(self.max_retry_after, self.retry_after * 2 ** min(tries - 1, 30)))
