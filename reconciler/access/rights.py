"""What one caller may do under one policy. Pure: AccessPolicy, the queues' own `access`, and the caller are all it reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from reconciler.access.caller import Caller
from reconciler.access.policy import ANYBODY, AccessPolicy, Role
from solver.model.workload import QueueName
from solver.policy.policy import Policy

Action = Literal[
    "plan",
    "look",
    "see-job",
    "read-job",
    "submit",
    "steer-job",
    "hold-job",
    "operate",
    "steer-policy",
    "admit-nodes",
    "audit",
]
"""plan: the cluster without names of users and jobs. look: the cluster, its queues, rounds and policy. see-job: that a job exists,
and its verdict. read-job: also its command, environment and logs. steer-job: cancel it, and the like. hold-job: let it not begin
for a while. operate: hold queues, boost jobs, and, everywhere, cordon nodes and have Git looked at. steer-policy: accept a revision
that is held, and stop following Git for a while. admit-nodes: let machines join as nodes, and take that back. audit: what every
user did, and the audit chain."""

ROLES_FOR: Final[dict[Action, frozenset[Role]]] = {
    "plan": frozenset({"planner", "viewer", "submitter", "operator", "admin"}),
    "look": frozenset({"viewer", "submitter", "operator", "admin"}),
    "see-job": frozenset({"viewer", "submitter", "operator", "admin"}),
    "read-job": frozenset({"submitter", "operator", "admin"}),
    "submit": frozenset({"submitter", "admin"}),
    "steer-job": frozenset({"admin"}),
    "hold-job": frozenset({"operator", "admin"}),
    "operate": frozenset({"operator", "admin"}),
    "steer-policy": frozenset({"admin"}),
    "admit-nodes": frozenset({"admin"}),
    "audit": frozenset({"admin"}),
}
"""Any one of these roles will do, in the job's queue or one above it."""

OWN: Final = frozenset[Action]({"see-job", "read-job", "steer-job", "hold-job"})
"""What every user may do with jobs that they submitted."""


class Rights:
    """The roles of a caller, by queue."""

    def __init__(self, caller: Caller, policy: Policy, access: AccessPolicy | None) -> None:
        self._caller = caller
        self._parents = {queue.name: queue.parent for queue in policy.queues}
        subjects = _subjects_of(caller, access)
        self._everywhere: set[Role] = set()
        self._in_queue: dict[QueueName, set[Role]] = {}
        for binding in access.roles if access else ():
            if subjects.isdisjoint(binding.subjects):
                continue
            if binding.queues is None:
                self._everywhere.add(binding.role)
            for queue in binding.queues or ():
                self._in_queue.setdefault(queue, set()).add(binding.role)
        for known in policy.queues:
            self._grant(known.name, "submitter", subjects, known.access.submitters)
            self._grant(known.name, "admin", subjects, known.access.admins)

    def may_look(self) -> bool:
        """Whether the caller has any role that sees the cluster, anywhere."""
        return self._anywhere("look")

    def may_submit(self) -> bool:
        """In some queue."""
        return self._anywhere("submit")

    def may_plan(self) -> bool:
        """Whether the caller has any role at all, anywhere."""
        return self._anywhere("plan")

    def may(self, action: Action, queue: QueueName | None, owner: str = "") -> bool:
        """Whether the caller may do this in a queue (None: in all of them), to a job that `owner` submitted."""
        if self._caller.owner or (action in OWN and owner == self._caller.user):
            return True
        return not ROLES_FOR[action].isdisjoint(self._roles_in(queue))

    def where(self, action: Action) -> tuple[frozenset[QueueName] | None, str]:
        """In which queues the caller may do this, such as the policy lacks now among them (None: in all); to whose jobs besides."""
        if self.may(action, None):
            return None, ""
        known = self._parents.keys() | self._in_queue.keys()
        return frozenset(
            queue for queue in known if self.may(action, queue)
        ), self._caller.user if action in OWN else ""

    def queues_for(self, action: Action) -> tuple[QueueName, ...]:
        """The queues of the policy in which the caller may do this."""
        return tuple(queue for queue in self._parents if self.may(action, queue))

    def _anywhere(self, action: Action) -> bool:
        granted = (self._everywhere, *self._in_queue.values())
        return self._caller.owner or not all(ROLES_FOR[action].isdisjoint(roles) for roles in granted)

    def _roles_in(self, queue: QueueName | None) -> set[Role]:
        roles = set(self._everywhere)
        seen: set[QueueName] = set()
        while queue is not None and queue not in seen:
            seen.add(queue)
            # A queue that is no longer in the policy has nothing above it, and what was granted in it by name still holds.
            roles |= self._in_queue.get(queue, set())
            queue = self._parents.get(queue)
        return roles

    def _grant(self, queue: QueueName, role: Role, subjects: frozenset[str], granted: Collection[str]) -> None:
        if not subjects.isdisjoint(granted):
            self._in_queue.setdefault(queue, set()).add(role)


def _subjects_of(caller: Caller, access: AccessPolicy | None) -> frozenset[str]:
    listed = {name for name, users in (access.groups if access else {}).items() if caller.user in users}
    return frozenset({f"user:{caller.user}", ANYBODY, *(f"group:{name}" for name in caller.groups | listed)})
