"""One thing to be told: an event joined with the job it is of, and which policies want it told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from reconciler.alerts.kinds import ABOUT_NO_JOB, ABOUT_WAITS, AlertKind, kind_of
from reconciler.alerts.policy import AlertPolicy
from reconciler.model.job_record import JobRecord
from reconciler.protocols.history import KeptEvent
from solver.model.document import Document
from solver.model.quantities import Instant
from solver.model.workload import JobName, QueueName


class Alert(Document, frozen=True):
    """What a receiver is told; "" and 0 where an event has no such thing. `number` is the event's.

    `after`: for how long it is so, of a threshold that policies name. `cause` is the first line of the event's: below it there may
    be what a task wrote. A sample is sent because a user asked.
    """

    number: int
    kind: AlertKind | Literal["sample"]
    time: Instant
    subject: str
    cause: str
    actor: str
    job: str = ""
    queue: str = ""
    user: str = ""
    attempt: int = 0
    beneficiary: str = ""
    after: str = ""


def alert_of(kept: KeptEvent, job: Callable[[JobName], JobRecord | None]) -> Alert | None:
    """What an event is to receivers; None: nothing. `job` finds the job of a name, if there is one."""
    event = kept.event
    kind = kind_of(event)
    if kind is None:
        return None
    first_line = next(iter(event.cause.splitlines()), "")
    after = event.purpose if kind in ABOUT_WAITS else ""
    alert = Alert(kept.number, kind, event.time, event.subject, first_line, event.actor, after=after)
    record = None if kind in ABOUT_NO_JOB else job(JobName(event.subject))
    if record is None:
        return alert
    return msgspec.structs.replace(
        alert,
        job=record.name,
        queue=record.spec.queue,
        user=record.user,
        attempt=event.attempt,
        beneficiary=event.beneficiary,
    )


def wants(policy: AlertPolicy, alert: Alert, parents: Mapping[QueueName, QueueName | None]) -> bool:
    """Whether a policy has it told. News of policy or nodes belongs to no user, and is told whatever queues and users it names."""
    if alert.kind not in policy.on or (alert.kind in ABOUT_WAITS and alert.after != str(policy.after.of(alert.kind))):
        return False
    if alert.kind in ABOUT_NO_JOB:
        return True
    of_user = not policy.users or alert.user in policy.users
    return of_user and (not policy.queues or _is_below(QueueName(alert.queue), policy.queues, parents))


def _is_below(
    queue: QueueName | None, wanted: tuple[QueueName, ...], parents: Mapping[QueueName, QueueName | None]
) -> bool:
    while queue is not None:
        if queue in wanted:
            return True
        queue = parents.get(queue)
    return False
