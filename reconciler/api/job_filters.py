"""Which jobs a list is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from reconciler.api.payloads import JobView
from reconciler.model.job_record import JobState
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree


@dataclass(frozen=True)
class JobFilter:
    """Parameters of the query, as a FastAPI dependency; what is left out lets everything through."""

    queue: Annotated[str, Query(description="Of this queue and those below it.", max_length=63)] = ""
    user: Annotated[str, Query(description="Submitted by this user.", max_length=200)] = ""
    state: Annotated[tuple[JobState, ...], Query(description="In one of these states.")] = ()
    prefix: Annotated[str, Query(description="With a name that begins so.", max_length=253)] = ""

    def test(self, policy: Callable[[], tuple[str, Policy]]) -> Callable[[JobView], bool]:
        """Says of a job whether it is asked for. The policy is read where a queue is named. Raises NoPolicyError."""
        tree = QueueTree.of(policy()[1]) if self.queue else None
        states = frozenset(self.state)

        def wanted(view: JobView) -> bool:
            within = view.spec.queue
            return (
                (not states or view.state in states)
                and (not self.user or view.user == self.user)
                and view.name.startswith(self.prefix)
                and (tree is None or self.queue == within or self.queue in tree.path(within))
            )

        return wanted
