"""Joins what the stores and the snapshot hold into what people ask for: jobs, queues, nodes, reasons in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from reconciler.api.payloads import HeldDevice, JobView, NodeView, QueueView
from reconciler.api.services import Services
from reconciler.control.control import NoPolicyError
from reconciler.control.islands import contradictions, reported_cliques
from reconciler.control.model_flops import ReportedWork, work_of
from reconciler.control.queue_use import QueueUse
from reconciler.control.use_summary import GpuUtilisation, added_up
from reconciler.lifecycle.checkpoints.pending_verification import unread
from reconciler.lifecycle.interventions.effects import HeldByHand, about, held_jobs
from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.lifecycle.jobs.budget_holds import BudgetSpent, budget_words, held_by_budgets
from reconciler.lifecycle.jobs.dependencies import depended_on
from reconciler.lifecycle.jobs.eligibility import blocks
from reconciler.lifecycle.jobs.idle_gpus import GpuStill
from reconciler.lifecycle.jobs.idle_rules import IdleFacts, exempt_words, idle_facts_of, idle_words
from reconciler.lifecycle.jobs.idleness import activity_of, idle_for
from reconciler.lifecycle.jobs.replicas import degradation
from reconciler.lifecycle.jobs.states import by_job, state_in, state_of
from reconciler.model.budget import BudgetStanding
from reconciler.model.facts import NodeFacts
from reconciler.model.gpu_peaks import PeakOf, peaks_of
from reconciler.model.health_record import NodeHealth
from reconciler.model.intervention_record import Intervention
from reconciler.model.job_record import JobRecord, JobState
from reconciler.model.late_runs import late_run
from reconciler.model.queue_line import QueueUser
from reconciler.protocols.backend import Activity, AttemptKey
from reconciler.protocols.ledger import Claim, JobHoldings, LedgerView, Marks
from solver.model.cluster import DeviceId, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Instant, Memory, MilliGpu
from solver.model.shape import Shape
from solver.model.snapshot import Snapshot
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.estimates import EarliestStart
from solver.plan.extent import Extent, extent_of
from solver.plan.plan import Departs, Inadmissible, Moves, Runs, Starts, Verdict, Waits, Yields
from solver.plan.reason import count
from solver.policy.policy import Policy, Queue, policy_of
from solver.policy.tree import QueueTree
from solver.round.advice import help_for

NOTHING_HELD: Final = JobHoldings({}, (), (), {})
"""Of jobs that were accepted just now."""


def job_view(services: Services, record: JobRecord) -> JobView:
    """One job. No other is read for it but where it may be the turn of others in its array: thousands may live."""
    return JobViews(services).of((record,))(record)


class JobViews:
    """Views of jobs, some after the other, each under one reading of what they need."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._of_all: Callable[[JobRecord], JobView] | None = None

    def of(self, records: Sequence[JobRecord]) -> Callable[[JobRecord], JobView]:
        """Views of these; where it may be the turn of others in an array, all that live are read, once."""
        if self._of_all is None and any(record.array and record.array.max_running is not None for record in records):
            self._of_all = job_viewer(self._services)
        view = self._of_all or job_viewer(self._services, records)
        # A job that holds nothing any more may have ended after its record was read, and before what it holds was.
        waiting = [each.name for each in records if each.outcome is None and view(each).since is None]
        newer = self._services.jobs.named(waiting)
        return lambda record: view(newer.get(record.name, record))


def job_viewer(
    services: Services, of: Sequence[JobRecord] | None = None, held: JobHoldings | None = None
) -> Callable[[JobRecord], JobView]:
    """Views of jobs under one reading of the stores and one look at the backend. `of`: of which jobs; None: of all that live.

    `held`: what they hold, where that is known.
    """
    records, sighted = services.jobs.live_jobs() if of is None else of, services.sighted()
    holds = _holdings(services, of) if held is None else held
    claims, reservations, attempts = holds.claims, holds.reservations, holds.attempts
    asked, stills = by_job(holds.intents), services.idle_gpus()
    now, by_hand = services.clock.now(), services.interventions.in_force()
    tallies, boosts = services.jobs.tallies(depended_on(records)), about(by_hand, "boost", "job", now)
    unread_now = unread(records, attempts, services.storages(), services.checkpoints)
    held_now = _held_now(services, records, by_hand, now)
    blocked, notes = blocks(records, now, claims.keys(), tallies, unread_now, held_now), _PolicyNotes.of(services)

    def view(record: JobRecord) -> JobView:
        claim, last = claims.get(record.name), record.outcome.attempt if record.outcome else 0
        return JobView(
            name=record.name,
            spec=record.spec,
            user=record.user,
            submitted_at=record.submitted_at,
            state=state_of(record, claim, asked[record.name], reservations, attempts.get(record.name, last)),
            attempt=claim.attempt if claim else attempts.get(record.name, last),
            since=claim.since if claim else None,
            running_since=claim.running_since if claim else None,
            time_limit=claim.time_limit if claim else None,
            idle_limit=claim.idle_limit if claim else None,
            budget_limits=notes.budget_limits(record),
            idle_exemption=notes.idle_exemption(record, now) if claim else "",
            marks=claim.marks if claim else Marks(),
            degraded=_degradation(record, claim, sighted, now) if claim else "",
            activity=_activity(claim, sighted, stills) if claim else None,
            work=_work(claim, sighted, notes.peak_of, now) if claim else None,
            tasks=claim.tasks if claim else (),
            gpus=record.spec.gpus,
            gpus_held=MilliGpu(sum(task.gpus for task in claim.tasks)) if claim else MilliGpu(0),
            cancel_requested_by=record.cancel_requested_by,
            outcome=record.outcome,
            suspended_by=record.suspended_by,
            failures=record.failures,
            block=None if claim else blocked.get(record.name),
            boost=boosts.get(record.name),
            array=record.array,
            pipeline=record.pipeline,
        )

    return view


def _held_now(
    services: Services, records: Sequence[JobRecord], by_hand: Collection[Intervention], now: Instant
) -> dict[JobName, HeldByHand | BudgetSpent]:
    """The jobs that a user or a budget keeps from beginning."""
    policy = _policy(services)
    return {**held_by_budgets(services.budgets(), records, policy), **held_jobs(by_hand, records, policy, now)}


class _PolicyNotes(NamedTuple):
    """What Budgets and IdlePolicies say of jobs, beside what is on record of each."""

    budgets: Sequence[BudgetStanding]
    tree: QueueTree | None
    idle: IdleFacts | None
    peak_of: PeakOf

    @classmethod
    def of(cls, services: Services) -> _PolicyNotes:
        budgets, policy = services.budgets(), _policy(services)
        peak_of = peaks_of(policy.scheduling.gpu_use.peaks)
        return cls(budgets, QueueTree.of(policy) if budgets else None, _idle_facts(services), peak_of)

    def budget_limits(self, record: JobRecord) -> tuple[str, ...]:
        if self.tree is None:
            return ()
        return tuple(budget_words(self.budgets, self.tree.path(record.spec.queue), record.user))

    def idle_exemption(self, record: JobRecord, now: Instant) -> str:
        return exempt_words(self.idle, record, now) if self.idle else ""


def _holdings(services: Services, of: Sequence[JobRecord] | None) -> JobHoldings:
    return holdings_of_all(services.ledger) if of is None else services.ledger.of([each.name for each in of])


def holdings_of_all(ledger: LedgerView) -> JobHoldings:
    """What every job holds and is promised."""
    claims = {claim.job: claim for claim in ledger.claims()}
    return JobHoldings(claims, ledger.intents(), ledger.reservations(), ledger.attempts())


def live_states(services: Services) -> dict[JobState, int]:
    """How many live jobs are in which state."""
    found: Counter[JobState] = Counter()
    for standing, number in services.ledger.standings().items():
        found[state_in(standing)] += number
    return dict(found)


def words_of(
    view: JobView, verdict: Verdict | None, nodes: Iterable[Node], told: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Why a job is where it is, as sentences, the most telling first. `nodes`: all that are known; `told`: by the backend."""
    if view.outcome is not None:
        return (view.outcome.message,)
    if view.tasks:
        hosts = dict.fromkeys(task.node for task in view.tasks)
        extent = _extent(view, {node.name: node for node in nodes if node.name in hosts})
        apart = (f"its tasks are {extent}",) if extent else ()
        held = f"it holds its devices in attempt {view.attempt}, on {', '.join(hosts)}"
        degraded = (f"it is degraded: {view.degraded}",) if view.degraded else ()
        notice = (f"it {verdict}",) if isinstance(verdict, Runs) and verdict.leaves_at is not None else ()
        known = (*_idle_words(view), *_warned_words(view), *_late_words(view, verdict))
        return (*_stuck_words(view), *told, *degraded, held, *notice, *apart, *known)
    if view.block is not None:
        return (str(view.block),)
    boosted = (str(view.boost),) if view.boost else ()
    said = verdict_words(verdict) if verdict else ("no round has looked at it yet",)
    return (*said, *_late_words(view, verdict), *told, *view.budget_limits, *boosted)


def help_of(view: JobView, verdict: Verdict | None) -> tuple[str, ...]:
    """What would help a job that waits in a round, or can never run; () for one that waits for something else, or does not wait."""
    waits = view.outcome is None and not view.tasks and view.block is None
    return help_for(verdict) if waits and verdict else ()


def node_views(
    snapshot: Snapshot,
    cordons: Mapping[str, Intervention],
    health: Mapping[NodeName, NodeHealth],
    facts: Mapping[NodeName, NodeFacts],
) -> tuple[NodeView, ...]:
    """Every node with what runs on it. `cordons`: those by hand, by node; `health`: of the nodes of which anything is known;
    `facts`: of those that tell of their hardware."""
    on_node: dict[NodeName, list[tuple[Job, TaskPlacement]]] = {node.name: [] for node in snapshot.nodes}
    for job in snapshot.jobs:
        for task in job.placement:
            on_node.setdefault(task.node, []).append((job, task))
    changing = {asked.device for asked in snapshot.in_flight.repartitions}
    views = (_node_view(node, on_node[node.name], changing, cordons.get(node.name)) for node in snapshot.nodes)
    contradicted = contradictions(snapshot.nodes, reported_cliques(facts))
    return tuple(
        msgspec.structs.replace(
            view,
            health=health[view.node.name].parts if view.node.name in health else (),
            nvlink=contradicted.get(view.node.name, ""),
        )
        for view in views
    )


def queue_views(
    uses: Iterable[tuple[Queue, QueueUse]],
    holds: Mapping[str, Intervention],
    active: Mapping[QueueName, tuple[GpuUtilisation, ...]] = MappingProxyType({}),
    shows_user: Callable[[QueueName, str], bool] | None = None,
) -> tuple[QueueView, ...]:
    """Every queue with what it, and the queues below it, hold and wait for. `holds`: those by hand, by queue.

    `active`: the use of what each queue holds itself. `shows_user`: which users of queues that they share; None: none of them.
    """
    uses = tuple(uses)
    below = added_up(active, {queue.name: queue.parent for queue, _ in uses})
    return tuple(
        QueueView(
            queue.name,
            queue.parent,
            queue.weight,
            running=use.running,
            pending=use.pending,
            gpus=use.gpus,
            hold=holds.get(queue.name),
            use=below.get(queue.name, ()),
            users=users_seen(queue.name, use, shows_user),
            hints=weight_hints(queue.name, use, shows_user),
            host=use.host,
            hours=use.hours,
        )
        for queue, use in uses
    )


def users_seen(
    queue: QueueName, use: QueueUse, shows_user: Callable[[QueueName, str], bool] | None
) -> tuple[QueueUser, ...]:
    """Those of a queue that they share; None shows none of them."""
    return tuple(one for one in use.users if shows_user is not None and shows_user(queue, one.user))


def weight_hints(
    queue: QueueName, use: QueueUse, shows_user: Callable[[QueueName, str], bool] | None
) -> tuple[str, ...]:
    """What may be wrong with the weights of a queue's users: a sentence for each name."""
    return tuple(
        f"a weight names user {name}, of whom no job is known; did you mean {meant}?"
        for name, meant in use.slips
        if shows_user is not None and shows_user(queue, meant)
    )


def verdict_words(verdict: Verdict) -> tuple[str, ...]:
    """What a round says of a job, as sentences."""
    match verdict:
        case Starts(gpus=gpus, entitled=entitled, extent=extent):
            where = f", {extent}" if extent else ""
            return (f"it starts: {count(gpus.number, 'GPU')}, {entitled} of them inside the guarantee{where}",)
        case Runs() | Yields() | Departs() | Moves():
            return (f"it {verdict}",)
        case Waits(reasons=reasons, estimate=estimate):
            return tuple(map(str, (*reasons, estimate) if estimate else reasons))
        case Inadmissible(reasons=reasons):
            return tuple(map(str, reasons))


def _policy(services: Services) -> Policy:
    """The one in force; an empty one before there is any: of holds it says what lies below what."""
    try:
        return services.policy()[1]
    except NoPolicyError:
        return policy_of(())


def _degradation(record: JobRecord, claim: Claim, sighted: BackendReports, now: Instant) -> str:
    return degradation(record.spec, claim, _known(claim, sighted), now) if record.spec.type == "service" else ""


def _known(claim: Claim, sighted: BackendReports) -> AttemptReport:
    return sighted.attempt(claim.job, claim.attempt).of_tasks({(task.group, task.index): 0 for task in claim.tasks})


def _idle_facts(services: Services) -> IdleFacts | None:
    """By what jobs are idle, without what their GPUs do; None: no IdlePolicy says it."""
    try:
        policies, (_, policy) = services.operations().idle, services.policy()
    except NoPolicyError:
        return None
    return idle_facts_of(policies, policy) if policies else None


def _work(claim: Claim, sighted: BackendReports, peak_of: PeakOf, now: Instant) -> ReportedWork | None:
    types = dict(claim.gpu_types)
    said = sighted.attempt(claim.job, claim.attempt).tasks
    return work_of(claim.tasks, said, lambda task: types.get(task.group, GpuType("")), peak_of, now)


def _activity(claim: Claim, sighted: BackendReports, stills: Mapping[AttemptKey, GpuStill]) -> Activity | None:
    if claim.idle_limit is None or claim.running_since is None:
        return None
    gpus = stills.get((claim.job, claim.attempt))
    return activity_of(_known(claim, sighted), claim.tasks, claim.running_since, gpus)


def _extent(view: JobView, nodes: Mapping[NodeName, Node]) -> Extent | None:
    """How far apart its tasks lie; None where there is but one, or a node is not known any more."""
    known = [nodes[task.node] for task in view.tasks if task.node in nodes]
    tasks = [(task.group, task.index) for task in view.tasks]
    return extent_of(view.spec, known, tasks) if len(known) == len(tasks) else None


def _idle_words(view: JobView) -> Iterator[str]:
    if view.marks.idle is not None:
        yield from idle_words(view.marks.idle)
    if view.idle_exemption:
        yield view.idle_exemption
    yield from _idle_limit_words(view)


def _idle_limit_words(view: JobView) -> Iterator[str]:
    if view.idle_limit is None or view.running_since is None:
        return
    if view.activity is None:
        yield f"it is not known what it does: its idle limit of {view.idle_limit} is not kept as long as that is so"
    elif idle_for(view.activity):
        yield f"it has been idle since {view.activity.active_at}; after {view.idle_limit} it is ended"


def _stuck_words(view: JobView) -> Iterator[str]:
    marks = view.marks
    if marks.stuck_at is not None:
        yield f"it is stuck: it has made no progress since {marks.still_since}; its tasks' logs have a dump of {marks.stuck_at}"


def _late_words(view: JobView, verdict: Verdict | None) -> Iterator[str]:
    """That a job may not have ended by its `finishBy`, as far as limits and estimates say."""
    by, limit = view.spec.to_finish_by(view.submitted_at), view.time_limit or view.spec.time_limit
    start = view.running_since
    if start is None and isinstance(verdict, Waits) and isinstance(verdict.estimate, EarliestStart):
        start = verdict.estimate.at
    if told := late_run(by, start, limit, runs=bool(view.tasks)):
        yield f"it may end too late for its finishBy, {by}: {told}"


def _warned_words(view: JobView) -> Iterator[str]:
    marks = view.marks
    if marks.warned_at is not None and view.running_since is not None and view.time_limit is not None:
        yield f"its time limit is over at {view.running_since.after(view.time_limit)}; its tasks were told at {marks.warned_at}"


def _node_view(
    node: Node,
    tasks: Sequence[tuple[Job, TaskPlacement]],
    changing: Collection[DeviceId],
    cordon: Intervention | None,
) -> NodeView:
    place = {gpu.id: gpu.index for gpu in node.gpus}
    slots = {slot.instance.id_on(slot.gpu): slot for _, task in tasks for slot in task.slots}
    place |= {device: place[slot.gpu] for device, slot in slots.items() if slot.gpu in place}
    held = [
        HeldDevice(device, job.name, slots[device].cost if device in slots else task.share)
        for job, task in tasks
        for device in task.devices
        if device in place
    ]
    shapes = [_shape_of(job, task) for job, task in tasks]
    return NodeView(
        # The next round sees it so.
        msgspec.structs.replace(node, cordoned=node.cordoned or cordon is not None),
        tuple(sorted(held, key=lambda part: (place[part.device], part.job, part.device))),
        Cpu(sum(shape.cpu for shape in shapes)),
        Memory(sum(shape.memory for shape in shapes)),
        tuple(dict.fromkeys(job.name for job, _ in tasks)),
        tuple(gpu.id for gpu in node.gpus if gpu.id in changing),
        cordon,
    )


def _shape_of(job: Job, task: TaskPlacement) -> Shape:
    return next(group.shape for group in job.spec.task_groups if group.name == task.group)
