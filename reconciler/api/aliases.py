"""A snapshot for readers that are not to know the users, such as CI: it decides a round as the whole one does.

What no round reads of a job is left out: commands, environment, secrets, what it depends on. Users, and jobs where wished, have
other names. A user's and a job's alias is the same in every snapshot made with one key, and without the key it can't be
told or tried whose it is. Rounds break ties by the names of jobs, so before a job's alias stands its place among all names, in
digits: the part after the last hyphen is what stays. What Git says keeps its name: queues, classes, nodes and their domains.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from reconciler.api.redaction import bare_spec
from solver.model.inflight import Counter, InFlight, Intent, Usage, declared_holder, declared_name
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec
from solver.policy.policy import Policy

_HEX_DIGITS = 12
"""48 bits: no two users of a cluster meet in one alias."""

_OF_JOBS = "evictions"
"""The counters with jobs as subjects."""

Rename = Callable[[str], str]


BUDGET: Final = "a PodDisruptionBudget"
"""In place of those that hold a job, by whatever names: a round needs no more."""


@dataclass(frozen=True)
class Aliases:
    """Other names for users, for data sets that are not declared, and for jobs."""

    user: Rename
    data: Rename
    job: Rename


def aliased(snapshot: Snapshot, key: str, users_in_git: Collection[str] = ()) -> Snapshot:
    """The snapshot under other names of users and jobs. `users_in_git` keep theirs, which rules of the policy name."""
    return exported(snapshot, aliases_for(snapshot, key, users_in_git))


def bare(snapshot: Snapshot) -> Snapshot:
    """The snapshot with jobs under their own names; users are numbered, anew in each snapshot."""
    past = (used.user for used in snapshot.in_flight.usage)
    users = sorted({user for user in (*(job.user for job in snapshot.jobs), *past) if user})
    numbers = {user: f"user-{number}" for number, user in enumerate(users, 1)}
    return exported(snapshot, Aliases(lambda user: numbers.get(user, user), _same, _same))


def users_named_by(policy: Policy) -> frozenset[str]:
    """The users that Reservation documents keep something for, and that have a weight: not so under another name."""
    sharing = (queue.users for queue in policy.queues if queue.users is not None)
    shared = ({*users.weights, *users.member_weights} for users in sharing)
    kept = (reservation.users or () for reservation in policy.reservations)
    return frozenset(user for users in (*kept, *shared) for user in users)


def aliases_for(snapshot: Snapshot, key: str, users_in_git: Collection[str] = ()) -> Aliases:
    """The aliases that `key` gives to what is in a snapshot."""
    names = sorted(set(_job_names(snapshot)))
    digits = len(str(len(names)))
    # The devices of Reservation documents are held under names of their own, that also have their place in the order.
    documents = declared_holder("")
    jobs = {
        name: f"{'job' if name < documents else 'run'}-{number:0{digits}}-{_tag(key, 'job', name)}"
        for number, name in enumerate(names, 1)
    }
    declared = {name for node in snapshot.nodes for name in node.data}
    return Aliases(
        lambda user: user if not user or user in users_in_git else f"user-{_tag(key, 'user', user)}",
        lambda data: data if data in declared else f"data-{_tag(key, 'data', data)}",
        lambda job: jobs.get(job, job),
    )


def exported(snapshot: Snapshot, aliases: Aliases) -> Snapshot:
    """Without what no round reads, under other names."""
    jobs = (_job(job, aliases) for job in snapshot.jobs)
    in_flight = _in_flight(snapshot.in_flight, aliases)
    return snapshot_of(snapshot.time, snapshot.nodes, jobs, in_flight, snapshot.node_sets, snapshot.inventory)


def _job(job: Job, aliases: Aliases) -> Job:
    return msgspec.structs.replace(
        job,
        name=JobName(aliases.job(job.name)),
        user=aliases.user(job.user),
        spec=_spec(job.spec, aliases),
        held_by=BUDGET if job.held_by else "",
    )


def _spec(spec: JobSpec, aliases: Aliases) -> JobSpec:
    data = tuple(aliases.data(name) for name in spec.data)
    return msgspec.structs.replace(bare_spec(spec), data=data, depends_on=(), array=None)


def _in_flight(known: InFlight, aliases: Aliases) -> InFlight:
    def renamed(name: JobName) -> JobName:
        return JobName(aliases.job(name))

    return msgspec.structs.replace(
        known,
        intents=tuple(_intent(intent, renamed) for intent in known.intents),
        reservations=tuple(msgspec.structs.replace(each, holder=renamed(each.holder)) for each in known.reservations),
        aging=tuple(msgspec.structs.replace(each, job=renamed(each.job)) for each in known.aging),
        usage=_usage(known.usage, aliases.user),
        history=tuple(msgspec.structs.replace(each, job=renamed(each.job)) for each in known.history),
        counters=tuple(_counter(each, aliases.job) for each in known.counters),
    )


def _usage(usage: Iterable[Usage], renamed: Rename) -> tuple[Usage, ...]:
    return tuple(msgspec.structs.replace(each, user=renamed(each.user)) if each.user else each for each in usage)


def _intent(intent: Intent, renamed: Callable[[JobName], JobName]) -> Intent:
    beneficiary = renamed(intent.beneficiary) if intent.beneficiary is not None else None
    return msgspec.structs.replace(intent, job=renamed(intent.job), beneficiary=beneficiary)


def _job_names(snapshot: Snapshot) -> Iterator[str]:
    """Of all jobs that the snapshot speaks of, also of those that are no more."""
    known = snapshot.in_flight
    held = (each.holder for each in known.reservations if declared_name(each.holder) is None)
    intents = (name for intent in known.intents for name in (intent.job, intent.beneficiary) if name is not None)
    counted = (each.subject for each in known.counters if each.name == _OF_JOBS)
    told = (
        *(job.name for job in snapshot.jobs),
        *(each.job for each in known.aging),
        *(each.job for each in known.history),
    )
    yield from (*told, *counted, *held, *intents)


def _counter(counter: Counter, renamed: Rename) -> Counter:
    return msgspec.structs.replace(counter, subject=renamed(counter.subject)) if counter.name == _OF_JOBS else counter


def _tag(key: str, kind: str, name: str) -> str:
    return hmac.digest(key.encode(), f"{kind}:{name}".encode(), hashlib.sha256).hex()[:_HEX_DIGITS]


def _same(name: str) -> str:
    return name
