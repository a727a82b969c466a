"""Joins what the stores and the snapshot hold into what people ask for: jobs, queues, nodes, reasons in words."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from reconciler.api.payloads import HeldDevice, JobView, NodeView, QueueLine, QueueView
from reconciler.api.services import Services
from reconciler.backend import Activity
from reconciler.checkpoints.unread import unread
from reconciler.control import NoPolicyError
from reconciler.interventions.effects import about, held
from reconciler.interventions.record import Intervention
from reconciler.jobs.dependencies import depended_on
from reconciler.jobs.eligible import blocks
from reconciler.jobs.idleness import activity_of, idle_for
from reconciler.jobs.record import JobRecord
from reconciler.jobs.sighted import Sighted
from reconciler.jobs.states import state_of
from reconciler.store.marks import Marks
from reconciler.store.protocols import Claim
from solver.extent import extent_of
from solver.plan.extent import Extent
from solver.plan.plan import Departs, Inadmissible, Moves, Runs, Starts, Verdict, Waits, Yields
from solver.rules.options import options_of
from solver.rules.policy import Policy, Queue, policy_of
from solver.rules.sharing import sharing_of
from solver.rules.tree import Line, QueueTree
from solver.rules.type_weights import weights_of
from solver.solve import standing
from solver.world.cluster import DeviceId, GpuType, Node, NodeName
from solver.world.quantities import Cpu, Memory, MilliGpu
from solver.world.shape import Shape
from solver.world.snapshot import Snapshot
from solver.world.workload import Job, TaskPlacement


def job_viewer(services: Services) -> Callable[[JobRecord], JobView]:
    """Views of jobs under one reading of the stores and one look at the backend."""
    ledger, sighted = services.ledger, services.sighted()
    claims = {claim.job: claim for claim in ledger.claims()}
    intents, reservations, attempts = ledger.intents(), ledger.reservations(), ledger.attempts()
    records, now, by_hand = services.jobs.live_jobs(), services.clock.now(), services.interventions.in_force()
    tallies, boosts = services.jobs.tallies(depended_on(records)), about(by_hand, "boost", "job", now)
    unread_now = unread(records, attempts, services.storages(), services.checkpoints)
    held_now = held(by_hand, records, _policy(services), now)
    blocked = blocks(records, now, claims.keys(), tallies, unread_now, held_now)

    def view(record: JobRecord) -> JobView:
        ended_in = record.outcome.attempt if record.outcome else 0
        claim, attempt = claims.get(record.name), attempts.get(record.name, ended_in)
        return JobView(
            name=record.name,
            spec=record.spec,
            user=record.user,
            submitted_at=record.submitted_at,
            state=state_of(record, claim, intents, reservations, attempt),
            attempt=claim.attempt if claim else attempt,
            since=claim.since if claim else None,
            running_since=claim.running_since if claim else None,
            time_limit=claim.time_limit if claim else None,
            idle_limit=claim.idle_limit if claim else None,
            marks=claim.marks if claim else Marks(),
            activity=_activity(claim, sighted) if claim else None,
            tasks=claim.tasks if claim else (),
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


def _policy(services: Services) -> Policy:
    """The one in force; an empty one before there is any: of holds it says what lies below what."""
    try:
        return services.policy()[1]
    except NoPolicyError:
        return policy_of(())


def _activity(claim: Claim, sighted: Sighted) -> Activity | None:
    if claim.idle_limit is None or claim.running_since is None:
        return None
    known = sighted.attempt(claim.job, claim.attempt).of_tasks({(task.group, task.index): 0 for task in claim.tasks})
    return activity_of(known, claim.tasks, claim.running_since)


def words_of(view: JobView, verdict: Verdict | None, nodes: Iterable[Node]) -> tuple[str, ...]:
    """Why a job is where it is, as sentences, the most telling first. `nodes`: all that are known."""
    if view.outcome is not None:
        return (view.outcome.message,)
    if view.tasks:
        hosts = dict.fromkeys(task.node for task in view.tasks)
        extent = _extent(view, {node.name: node for node in nodes if node.name in hosts})
        apart = (f"its tasks are {extent}",) if extent else ()
        held = f"it holds its devices in attempt {view.attempt}, on {', '.join(hosts)}"
        return (*_stuck_words(view), held, *apart, *_idle_words(view), *_warned_words(view))
    if view.block is not None:
        return (str(view.block),)
    boosted = (str(view.boost),) if view.boost else ()
    return (*(verdict_words(verdict) if verdict else ("no round has looked at it yet",)), *boosted)


def _extent(view: JobView, nodes: Mapping[NodeName, Node]) -> Extent | None:
    """How far apart its tasks lie; None where there is but one, or a node is not known any more."""
    known = [nodes[task.node] for task in view.tasks if task.node in nodes]
    return extent_of(view.spec, known) if len(known) == len(view.tasks) else None


def _idle_words(view: JobView) -> Iterator[str]:
    if view.idle_limit is None or view.running_since is None:
        return
    if view.activity is None:
        yield f"nobody says what it does: its idle limit of {view.idle_limit} is not kept as long as that is so"
    elif idle_for(view.activity):
        yield f"it has been idle since {view.activity.active_at}; after {view.idle_limit} it is ended"


def _stuck_words(view: JobView) -> Iterator[str]:
    marks = view.marks
    if marks.stuck_at is not None:
        yield f"it is stuck: it has made no progress since {marks.still_since}; its tasks' logs have a dump of {marks.stuck_at}"


def _warned_words(view: JobView) -> Iterator[str]:
    marks = view.marks
    if marks.warned_at is not None and view.running_since is not None and view.time_limit is not None:
        yield f"its time limit is over at {view.running_since.after(view.time_limit)}; its tasks were told at {marks.warned_at}"


def verdict_words(verdict: Verdict) -> tuple[str, ...]:
    """What a round says of a job, as sentences."""
    match verdict:
        case Starts(gpus=gpus, entitled=entitled, extent=extent):
            where = f", {extent}" if extent else ""
            return (f"it starts: {gpus} GPUs, {entitled} of them inside the guarantee{where}",)
        case Runs():
            return ("it holds its devices and keeps them",)
        case Yields() | Departs() | Moves():
            return (f"it {verdict}",)
        case Waits(reasons=reasons, estimate=estimate):
            return tuple(map(str, (*reasons, estimate) if estimate else reasons))
        case Inadmissible(reasons=reasons):
            return tuple(map(str, reasons))


def node_views(snapshot: Snapshot, cordons: Mapping[str, Intervention]) -> tuple[NodeView, ...]:
    """Every node with what runs on it. `cordons`: those by hand, by node."""
    on_node: dict[NodeName, list[tuple[Job, TaskPlacement]]] = {node.name: [] for node in snapshot.nodes}
    for job in snapshot.jobs:
        for task in job.placement:
            on_node.setdefault(task.node, []).append((job, task))
    changing = {asked.device for asked in snapshot.in_flight.repartitions}
    return tuple(_node_view(node, on_node[node.name], changing, cordons.get(node.name)) for node in snapshot.nodes)


def _node_view(
    node: Node,
    tasks: Sequence[tuple[Job, TaskPlacement]],
    changing: Collection[DeviceId],
    cordon: Intervention | None,
) -> NodeView:
    place = {gpu.id: gpu.index for gpu in node.gpus}
    place |= {task.devices[0]: place[task.mig.gpu] for _, task in tasks if task.mig and task.mig.gpu in place}
    held = [
        HeldDevice(device, job.name, task.mig.cost if task.mig else task.share)
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


def queue_views(snapshot: Snapshot, policy: Policy, holds: Mapping[str, Intervention]) -> tuple[QueueView, ...]:
    """Every queue with what it, and the queues below it, hold and wait for. `holds`: those by hand, by queue."""
    tree = QueueTree.of(policy)
    shares, _ = standing(snapshot, policy)
    gpu_types = tuple(sorted({node.gpu_type for node in snapshot.nodes if node.gpus}))
    waiting = _waiting(snapshot, tree, gpu_types, policy)
    past = _past_use(snapshot, tree) if policy.scheduling.usage_half_life else {}

    def line(queue: Queue, gpu_type: GpuType) -> QueueLine:
        at = Line(queue.name, gpu_type)
        guaranteed, held = MilliGpu(shares.guaranteed.get(at, 0)), MilliGpu(shares.used.get(at, 0))
        ceiling, entry = shares.ceiling.get(at), queue.quota_for(gpu_type)
        return QueueLine(
            gpu_type,
            guaranteed,
            None if ceiling is None else MilliGpu(ceiling),
            fair_share=MilliGpu(shares.fair.get(at, 0)),
            held=held,
            borrowed=MilliGpu(max(0, held - guaranteed)),
            waiting=MilliGpu(waiting.get(at, 0)),
            past_gpu_hours=round(past.get(at, 0.0), 3),
            lendable=entry.lendable if entry else None,
        )

    def jobs(queue: Queue, pending: bool) -> int:
        return sum(
            queue.name in tree.path(job.spec.queue) for job in snapshot.jobs if (job.phase == "pending") == pending
        )

    return tuple(
        QueueView(
            queue.name,
            queue.parent,
            queue.weight,
            running=jobs(queue, pending=False),
            pending=jobs(queue, pending=True),
            gpus=tuple(line(queue, gpu_type) for gpu_type in gpu_types),
            hold=holds.get(queue.name),
        )
        for queue in policy.queues
    )


def _past_use(snapshot: Snapshot, tree: QueueTree) -> dict[Line, float]:
    """GPU-hours, of each queue with those below it."""
    past: dict[Line, float] = {}
    for used in snapshot.in_flight.usage:
        for line in tree.lines(used.queue, used.gpu_type):
            past[line] = past.get(line, 0.0) + used.gpu_hours
    return past


def _waiting(snapshot: Snapshot, tree: QueueTree, gpu_types: tuple[GpuType, ...], policy: Policy) -> dict[Line, int]:
    wanted: dict[Line, int] = {}
    for line, milli in _wishes(snapshot, tree, gpu_types, policy):
        wanted[line] = wanted.get(line, 0) + milli
    return wanted


def _wishes(
    snapshot: Snapshot, tree: QueueTree, gpu_types: tuple[GpuType, ...], policy: Policy
) -> Iterator[tuple[Line, int]]:
    """What each pending job would be charged under its first choice, on every queue of its path."""
    sharing, weights = sharing_of(policy, tree, snapshot.nodes), weights_of(policy.scheduling.gpu_types)
    for job in snapshot.pending:
        for option in options_of(job.spec, gpu_types, sharing, weights=weights)[:1]:
            for gpu_type, milli in option.wanted.items():
                yield from ((Line(queue, gpu_type), milli) for queue in tree.path(job.spec.queue))
