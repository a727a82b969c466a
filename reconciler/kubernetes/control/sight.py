"""What the objects of an API server are to a round: a snapshot, and each gang as a job on record. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from reconciler.kubernetes.binder.budgets import Budgets, protected_gangs
from reconciler.kubernetes.binder.intents import Pods, in_flight_of
from reconciler.kubernetes.binder.journal import StartJournal
from reconciler.kubernetes.control.starts import starts_of
from reconciler.kubernetes.mig.geometry import Geometry
from reconciler.kubernetes.objects.cluster import KubernetesCluster
from reconciler.kubernetes.objects.gang_troubles import gang_troubles
from reconciler.kubernetes.objects.jobs import PodGang
from reconciler.kubernetes.objects.pod_view import PodView, as_view, view_of
from reconciler.lifecycle.interventions.effects import about, held_jobs
from reconciler.lifecycle.jobs.budget_holds import held_by_budgets
from reconciler.lifecycle.jobs.states import state_of
from reconciler.model.budget import BudgetStanding
from reconciler.model.intervention_record import Intervention
from reconciler.model.job_record import JobRecord
from reconciler.protocols.ledger import Claim
from solver.model.cluster import Node
from solver.model.inflight import ConvergenceClock, Ended, InFlight, Intent, Repartitioning, Reservation, Usage
from solver.model.inflight import Counter as Tally
from solver.model.quantities import Duration, Instant
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskPlacement
from solver.policy.policy import Policy
from solver.queueing.costs import near
from solver.queueing.durations import quantiles


@dataclass(frozen=True)
class Sight:
    """One look at the cluster: what its objects mean, those that are looked at again, and what is in flight there.

    What callers of the API ask of all gangs is worked out when it is asked for, once: no pass needs it.
    """

    cluster: KubernetesCluster
    pods: PodView
    budgets: Budgets
    intents: tuple[Intent, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    repartitions: tuple[Repartitioning, ...] = ()
    counters: tuple[Tally, ...] = ()
    geometry: Geometry = field(default_factory=Geometry)
    awaited: Mapping[JobName, str] = field(default_factory=dict)
    """How it stands with nodes that were asked for, by the gangs that wait for them."""

    @property
    def gangs(self) -> Mapping[JobName, PodGang]:
        """All gangs by name."""
        return self.cluster.index.gangs

    @cached_property
    def records(self) -> tuple[JobRecord, ...]:
        """Every gang that a round can be asked about, as a job on record; sorted by name."""
        return tuple(map(_record, self.cluster.jobs))

    @cached_property
    def words(self) -> Mapping[JobName, tuple[str, ...]]:
        """What is to be said of gangs that wait for nodes, or run on some which are not ready or under pressure."""
        found: dict[JobName, tuple[str, ...]] = {job: (told,) for job, told in self.awaited.items()}
        for one in gang_troubles(self.gangs, self.pods, self.cluster.troubles):
            found[one.gang.name] = (*found.get(one.gang.name, ()), one.sentence)
        return found

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """What every gang holds, sorted by name."""
        asked = _starts(self.intents)
        return tuple(
            _claim(job, asked.get(job.name)) for job in self.cluster.jobs if job.placement or job.name in asked
        )


def holders_of(sight: Sight) -> Iterator[tuple[QueueName, str, Claim]]:
    """What every gang holds, with its queue and user."""
    jobs = sight.cluster.index.jobs
    for claim in sight.claims:
        yield jobs[claim.job].spec.queue, jobs[claim.job].user, claim


NOTHING_SEEN = Sight(KubernetesCluster((), (), ()), view_of(()), {})
"""Before the first look."""


def cluster_sight(
    cluster: KubernetesCluster,
    pods: Pods,
    budgets: Budgets,
    start_deadline: Duration,
    now: Instant,
    remembered: Iterable[StartJournal] = (),
) -> Sight:
    """One look. `start_deadline`: how long a gang may take from its bindings until it runs.

    `remembered`: starts that this process has begun and goes on with, also where the pod that said so is gone.
    """
    seen = as_view(pods)
    flight = in_flight_of(cluster, seen, starts_of(cluster, seen, start_deadline, now, remembered))
    return Sight(cluster, seen, budgets, flight.intents, flight.reservations)


class Remembered(msgspec.Struct, frozen=True):
    """What no object of the cluster says: when gangs were evicted, what queues have used, which lowered limits tick, and how long
    gangs ran that have `ended`.
    """

    evictions: Mapping[JobName, tuple[Instant, ...]] = {}
    usage: tuple[Usage, ...] = ()
    clocks: tuple[ConvergenceClock, ...] = ()
    ended: tuple[Ended, ...] = ()


def snapshot_from(
    now: Instant,
    sight: Sight,
    policy: Policy,
    by_hand: Collection[Intervention],
    past: Remembered,
    budgets: Sequence[BudgetStanding] = (),
) -> Snapshot:
    """The world of a round. Gangs that are not whole yet, refused, or held by hand or by a budget are not in it."""
    nodes = _cordoned(sight, about(by_hand, "cordon", "node", now))
    short = _short(sight, now)
    intents = tuple(intent for intent in sight.intents if intent.kind != "start" or intent.job not in short)
    held = _held(now, sight, policy, by_hand, budgets)
    jobs = tuple(_jobs(now, sight, by_hand, held, past, short))
    quantile = policy.scheduling.duration_quantile
    endless = bool(quantile) and bool(sight.cluster.index.endless)
    in_flight = InFlight(
        intents=intents,
        reservations=sight.reservations,
        usage=past.usage,
        counters=sight.counters,
        durations=quantiles(past.ended, quantile) if endless else (),
        history=near(past.ended, jobs) if policy.goes_by_history else (),
        convergence=past.clocks,
        repartitions=sight.repartitions,
    )
    return snapshot_of(now, nodes, jobs, in_flight, sight.cluster.node_sets, "reported")


def _cordoned(sight: Sight, cordons: Collection[str]) -> Iterable[Node]:
    if not cordons:
        return sight.cluster.nodes
    return (
        msgspec.structs.replace(node, cordoned=True) if node.name in cordons and not node.cordoned else node
        for node in sight.cluster.nodes
    )


def _record(job: Job) -> JobRecord:
    return JobRecord(job.name, job.spec, job.user, job.submitted_at)


def _starts(intents: Iterable[Intent]) -> dict[JobName, Intent]:
    return {intent.job: intent for intent in intents if intent.kind in ("start", "grow")}


def _claim(job: Job, asked: Intent | None) -> Claim:
    return Claim(
        job.name,
        job.attempt,
        _whole(job, asked),
        since=asked.asked_at if asked and asked.kind == "start" else job.started_at or job.submitted_at,
        running_since=job.started_at,
        time_limit=job.time_limit,
    )


def _whole(job: Job, asked: Intent | None) -> tuple[TaskPlacement, ...]:
    """Where its tasks are, and where those will be whose bindings are on their way."""
    there = {(task.group, task.index) for task in job.placement}
    coming = asked.tasks if asked else ()
    both = (*job.placement, *(task for task in coming if (task.group, task.index) not in there))
    return tuple(sorted(both, key=lambda task: (task.group, task.index)))


def _held(
    now: Instant,
    sight: Sight,
    policy: Policy,
    by_hand: Collection[Intervention],
    budgets: Sequence[BudgetStanding],
) -> Collection[JobName]:
    """The gangs that a person or a budget keeps from beginning. What is promised to a gang no budget takes back."""
    by_person = held_jobs(by_hand, map(_record, sight.cluster.index.jobs.values()), policy, now)
    if not budgets:
        return by_person.keys()
    promised = {intent.job for intent in sight.intents if intent.kind == "nominate"}
    waiting = (job for job in sight.cluster.index.jobs.values() if not job.placement and job.name not in promised)
    return by_person.keys() | held_by_budgets(budgets, map(_record, waiting), policy).keys()


def _jobs(
    now: Instant,
    sight: Sight,
    by_hand: Collection[Intervention],
    waiting: Collection[JobName],
    past: Remembered,
    short: Collection[JobName],
) -> Iterable[Job]:
    """Most are as their pods say, and the same objects as a round ago: only those of which more is known are looked at."""
    protected = protected_gangs(sight.cluster, sight.pods, sight.budgets)
    boosts = about(by_hand, "boost", "job", now)
    of_job, asked = _by_job(sight.intents), _starts(sight.intents)
    jobs = dict(sight.cluster.index.jobs)
    of_more = {*protected, *waiting, *of_job, *past.evictions, *map(JobName, boosts)}
    for name in of_more & jobs.keys():
        job = jobs[name]
        if job.placement or name in asked:
            claim = _claim(job, asked.get(name))
            standing = _standing(_record(job), claim, of_job.get(name, ()))
            if name in short and "phase" not in standing:
                standing |= {"phase": "running", "spec": _growing(job, claim)}
        elif name in waiting:
            del jobs[name]
            continue
        else:
            standing = {"boosted": name in boosts}
        if held_by := protected.get(name):
            standing |= {"leaves": "not", "held_by": held_by}
        jobs[name] = msgspec.structs.replace(job, evicted_at=past.evictions.get(name, ()), **standing)
    return jobs.values()


def _standing(record: JobRecord, claim: Claim, intents: Collection[Intent]) -> dict[str, object]:
    standing: dict[str, object] = {"placement": claim.tasks, "attempt": claim.attempt}
    if state_of(record, claim, intents) in ("checkpointing", "evicting", "stopping"):
        return {**standing, "phase": "stopping"}
    return standing


def _short(sight: Sight, now: Instant) -> frozenset[JobName]:
    """Gangs that have lost pods since they were bound whole, and whose time to be whole again is not over: they may grow."""
    jobs = sight.cluster.index.jobs
    return frozenset(
        intent.job
        for intent in sight.intents
        if intent.kind == "start"
        and intent.deadline > now
        and len(intent.tasks) < sum(group.replicas for group in jobs[intent.job].spec.task_groups)
    )


def _growing(job: Job, claim: Claim) -> JobSpec:
    """What the gang has will do, so that a round lets it grow again; where that takes too long its start is overdue."""
    there = Counter(task.group for task in claim.tasks)
    groups = tuple(
        msgspec.structs.replace(group, min_replicas=min(group.least, there[group.name]))
        for group in job.spec.task_groups
    )
    return msgspec.structs.replace(job.spec, task_groups=groups)


def _by_job(intents: Iterable[Intent]) -> dict[JobName, list[Intent]]:
    found: dict[JobName, list[Intent]] = {}
    for intent in intents:
        found.setdefault(intent.job, []).append(intent)
    return found
