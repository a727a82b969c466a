"""Random small worlds for property tests, and the shorthand that builds clusters and jobs in a line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import msgspec
from hypothesis import strategies as st

from solver.model.amounts import WHOLE_PORT, Amounts, amounts_of
from solver.model.cluster import DeviceId, Gpu, GpuType, Level, Node, NodeName
from solver.model.node_sets import NodeSet
from solver.model.quantities import Cpu, Duration, Instant, Memory, MilliGpu
from solver.model.shape import Shape, SharingMode, beside_of
from solver.model.snapshot import Snapshot, snapshot_of
from solver.model.workload import (
    Bundle,
    GroupTopology,
    Job,
    JobName,
    JobSpec,
    QueueName,
    Spread,
    TaskGroup,
    TaskPlacement,
    Together,
    TopologyRequest,
)
from solver.policy.division import SharingPolicy, TrustGroup
from solver.policy.harm import Convergence, Evictions, Protection
from solver.policy.ordering import OrderBy, Ordering, Turns
from solver.policy.policy import (
    Policy,
    PriorityClass,
    Queue,
    Quota,
    Reclaim,
    SchedulingPolicy,
    policy_of,
)
from solver.policy.user_shares import UserShares

GIB = 2**30
TYPES = (GpuType("H100"), GpuType("A100"))


def node(
    name: str, gpus: int, gpu_type: str = "H100", *, rack: str = "", block: str = "", cpu: int = 96, pool: str = ""
) -> Node:
    """A healthy node with `gpus` devices named NODE/0 and up, 96 cores and 1 TiB."""
    devices = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(gpus))
    return Node(
        NodeName(name),
        pool or gpu_type.lower(),
        Cpu(cpu * 1000),
        Memory(1024 * GIB),
        GpuType(gpu_type),
        devices,
        rack=rack,
        block=block,
    )


def job(
    name: str,
    queue: str,
    tasks: int,
    gpus: int,
    *,
    types: Sequence[str] = (),
    required: Level | None = None,
    preferred: Level | None = None,
    cpu: int = 0,
    submitted: int = 0,
    priority_class: str = "",
) -> Job:
    """A pending job with one task group."""
    shape = Shape(gpus, tuple(GpuType(t) for t in types), Cpu(cpu * 1000))
    spec = JobSpec(
        QueueName(queue),
        (TaskGroup("worker", tasks, shape),),
        priority_class,
        TopologyRequest(required, preferred),
    )
    return Job(JobName(name), Instant(submitted), spec)


CLASSES = (
    PriorityClass("inference", 1000, "latency-critical"),
    PriorityClass("training", 100, "standard"),
    PriorityClass("batch", 10, "preemptible"),
)


HOUR_MS = 3_600_000
ORDERS: tuple[OrderBy, ...] = ("priority", "fifo", "shortest", "least-served", "gittins")
COSTS: tuple[OrderBy, ...] = ("shortest", "least-served", "gittins")
USERS = ("", "ada", "bob")


orderings = st.one_of(
    st.builds(Ordering, st.sampled_from(ORDERS), st.booleans()),
    st.builds(Ordering, st.sampled_from(COSTS), st.booleans(), st.just(Turns(Duration(HOUR_MS)))),
)


def quota_of(
    gpu_type: str,
    guaranteed: int | None = None,
    most: int | None = None,
    per_user: int | None = None,
    lendable: int | None = None,
) -> Quota:
    """A quota in whole GPUs."""
    limits = [None if count is None else MilliGpu.gpus(count) for count in (guaranteed, most, per_user, lendable)]
    return Quota(GpuType(gpu_type), limits[0], limits[1], limits[2], limits[3])


@st.composite
def policies(draw: st.DrawFn, keeping: bool = False) -> Policy:
    """A tree org -> {left, right -> {r1, r2}} with guarantees and ceilings, some unset, some zero; at times with gates.

    `keeping`: hardly any ceilings, and some queues that do not lend all that they are guaranteed.
    """

    def seldom() -> bool:
        return draw(st.integers(0, 15)) == 15

    def quota(root: bool) -> tuple[Quota, ...]:
        entries = []
        for gpu_type in TYPES:
            guaranteed = (
                draw(st.none() | st.integers(0, 8)) if not keeping else None if root else draw(st.integers(0, 4))
            )
            ceiling = draw(st.none() | st.integers(guaranteed or 0, 16)) if not keeping or seldom() else None
            per_user = draw(st.integers(0, 8)) if seldom() else None
            lendable = draw(st.sampled_from([None, 0, 0, guaranteed // 2])) if keeping and guaranteed else None
            entries.append(quota_of(gpu_type, guaranteed, ceiling, per_user, lendable))
        return tuple(entries)

    def queue(name: str, parent: str | None) -> Queue:
        return Queue(
            QueueName(name),
            QueueName(parent) if parent else None,
            quota(parent is None),
            draw(st.integers(1, 3)),
            draw(st.sampled_from(["Hold", "HoldAndDrain"])) if seldom() else "None",
            draw(st.sampled_from([("training", "batch"), ("inference",)])) if seldom() else None,
            ordering=draw(orderings) if draw(st.integers(0, 3)) == 3 else None,
        )

    aging = draw(st.sampled_from([0.0, 1.0, 3.0]))
    protection = Protection(Duration(HOUR_MS * draw(st.sampled_from([0, 0, 2]))))
    preemptible, may_borrow = draw(st.sampled_from([(True, False), (True, False), (False, True), (False, False)]))
    convergence = Convergence(evict=draw(st.sampled_from(["none", "preemptible", "all"])))
    evictions = Evictions(draw(st.sampled_from([None, None, 1])), draw(st.sampled_from([0.0, 0.0, 0.9])))
    reclaim: Reclaim = draw(st.sampled_from(["fair-share", "fair-share", "guaranteed"]))
    return policy_of(
        (queue("org", None), queue("left", "org"), queue("right", "org"), queue("r1", "right"), queue("r2", "right")),
        (
            msgspec.structs.replace(CLASSES[0], preemptible=preemptible, may_borrow=may_borrow),
            *(msgspec.structs.replace(known, aging_per_hour=aging, protection=protection) for known in CLASSES[1:]),
        ),
        SchedulingPolicy(reclaim=reclaim, evictions=evictions, convergence=convergence),
    )


def comparing_across(policy: Policy) -> Policy:
    """The policy, whose classes are all of one SLO class and compare across queues, but for the last."""
    first, *middle, last = (
        msgspec.structs.replace(known, slo_class="standard", scope="cluster") for known in policy.priority_classes
    )
    classes = (first, *middle, msgspec.structs.replace(last, scope="queue"))
    return msgspec.structs.replace(policy, priority_classes=classes)


def shared_by_users(policy: Policy) -> Policy:
    """The policy, whose users share every queue that does not have jobs take turns; one of them weighs twice as much."""
    queues = tuple(
        msgspec.structs.replace(queue, users=UserShares(True, {"ada": 2})) if queue.parent is None else queue
        for queue in policy.queues
    )
    return msgspec.structs.replace(policy, queues=queues)


@st.composite
def task_groups(draw: st.DrawFn, name: str, shape: Shape, elastic: bool, close: bool, inner: bool = False) -> TaskGroup:
    """One to three tasks of a shape; elastic groups may start with fewer. `inner`: in steps, and with wishes of their own."""
    replicas = draw(st.integers(1, 3))
    least = draw(st.integers(1, replicas)) if elastic else None
    step = draw(st.sampled_from([1, 1, 2])) if inner and least is not None and replicas - least == 2 else 1
    wish = draw(WISHES) if inner else None
    topology = GroupTopology(*draw(closeness(inner)), wish) if close else GroupTopology()
    return TaskGroup(name, replicas, shape, min_replicas=least, topology=topology, replica_step=step)


WISHES: st.SearchStrategy[Level | None] = st.sampled_from([None, None, None, "island", "rack"])


@st.composite
def together(draw: st.DrawFn, groups: int) -> tuple[Together, ...]:
    """Both groups of a job in one domain, at times."""
    if groups < 2 or draw(st.booleans()):
        return ()
    return (Together(("g0", "g1"), draw(st.sampled_from([None, "island", "rack", "block"])), draw(WISHES)),)


@st.composite
def units_of_groups(draw: st.DrawFn, waiting: Job) -> Job:
    """The job, mostly with a second group, and made of two or three units of both, of which some may come later."""
    if draw(st.integers(0, 5)) == 0:
        return waiting
    units, (first, *_) = draw(st.integers(2, 3)), waiting.spec.task_groups
    least = draw(st.sampled_from([None, 1, 1, 2]))
    level: Level | None = draw(st.sampled_from([None, "island", "rack", "block"]))
    known = Together(("g0", "g1"), level, draw(WISHES), units, least)
    more = msgspec.structs.replace(first.shape, gpus=draw(st.sampled_from([0, 1, 1, 2])))
    groups = (
        TaskGroup("g0", units * draw(st.sampled_from([1, 1, 2])), first.shape),
        TaskGroup("g1", units * draw(st.sampled_from([1, 1, 2])), more),
    )
    asked = msgspec.structs.replace(waiting.spec.topology, together=(known,), group=None, spread=None)
    spec = msgspec.structs.replace(waiting.spec, task_groups=groups, topology=asked)
    return msgspec.structs.replace(waiting, spec=spec)


@st.composite
def running_units(draw: st.DrawFn, known: Job) -> Job:
    """The running job of one task; where it has GPUs enough, mostly a gang of units of two groups in its place."""
    (task, *others) = known.placement
    each = draw(st.sampled_from([1, 1, 0]))  # GPUs of the second task of a unit
    there = len(task.devices) // (1 + each)
    if others or there < 1 or draw(st.integers(0, 3)) == 0:
        return known
    units = max(2, there + draw(st.integers(0, 2)))
    numbers = sorted(draw(st.lists(st.sampled_from(range(units)), min_size=there, max_size=there, unique=True)))
    level: Level | None = draw(st.sampled_from([None, "rack", "block"]))
    kept = Together(("g0", "g1"), level, None, units, draw(st.integers(1, there)))
    groups = (TaskGroup("g0", units, Shape(1)), TaskGroup("g1", units, Shape(each, cpu=Cpu(0 if each else 1000))))
    devices = iter(task.devices)
    placement = tuple(
        TaskPlacement(group, number, task.node, tuple(islice(devices, gpus)))
        for group, gpus in (("g0", 1), ("g1", each))
        for number in numbers
    )
    spec = msgspec.structs.replace(known.spec, task_groups=groups, topology=TopologyRequest(together=(kept,)))
    return msgspec.structs.replace(known, spec=spec, placement=placement)


@st.composite
def with_units(draw: st.DrawFn, world: Snapshot, running: bool = False) -> Snapshot:
    """The world, in which most waiting jobs are made of units of two groups; and those that are `running`, too."""
    jobs = [
        draw(units_of_groups(known)) if known.phase == "pending" else draw(running_units(known)) if running else known
        for known in world.jobs
    ]
    return snapshot_of(world.time, world.nodes, jobs, world.in_flight)


@st.composite
def closeness(
    draw: st.DrawFn, inner: bool = False
) -> tuple[Level | None, Bundle | tuple[Bundle, ...] | None, Spread | None]:
    """A required level or bundles, if `inner` also of bundles and with wishes, at times; and now and then a spread."""
    levels: st.SearchStrategy[Level] = st.sampled_from(("island", "rack", "block"))
    kept = draw(st.integers(0, 5))
    required = draw(levels) if kept == 1 else None
    bundle: Bundle | tuple[Bundle, ...] | None = None
    if kept > 3:
        bundle = Bundle(draw(st.integers(1, 2)), draw(levels), draw(WISHES) if inner else None)
    elif inner and kept == 3:
        bundle = (Bundle(2, draw(levels)), Bundle(4, draw(st.sampled_from([None, "rack", "block"])), draw(WISHES)))
    spread = Spread(draw(st.sampled_from(["node", "rack"])), draw(st.integers(1, 2)))
    return required, bundle, draw(st.sampled_from([None, None, spread]))


@st.composite
def jobs(
    draw: st.DrawFn,
    number: int,
    sizes: Sequence[int] = (1, 2, 4),
    elastic: bool = False,
    close: bool = False,
    inner: bool = False,
) -> Job:
    """A pending job of one or two groups."""
    groups = draw(st.integers(1, 2)) if draw(st.booleans()) else 1
    shapes = [
        Shape(
            draw(st.sampled_from(sizes)),
            draw(st.sampled_from([(), TYPES[:1], TYPES[1:], TYPES, TYPES[::-1]])),
            Cpu(1000 * draw(st.sampled_from([0, 0, 1, 8]))),
        )
        for _ in range(groups)
    ]
    spec = JobSpec(
        QueueName(draw(st.sampled_from(["left", "r1", "r2"]))),
        tuple(
            draw(task_groups(f"g{index}", shape, elastic and index == 0, close, inner))
            for index, shape in enumerate(shapes)
        ),
        draw(st.sampled_from([known.name for known in CLASSES])),
        TopologyRequest(
            draw(st.sampled_from([None, None, "rack", "block"])),
            draw(st.sampled_from([None, None, "island", "rack", ("island", "rack"), ("block", "rack")])),
            *(draw(closeness(inner))[1:] if close else (None, None)),
            "bound" if draw(st.integers(0, 5)) == 5 else "normal",
            together=draw(together(groups)) if inner else (),
        ),
        draw(st.sampled_from([None, None, Duration(HOUR_MS), Duration(9 * HOUR_MS)])),
        fallback_after=draw(st.sampled_from([None, None, None, Duration(2 * HOUR_MS)])),
    )
    return Job(
        JobName(f"job-{number}"),
        Instant(-HOUR_MS * draw(st.integers(0, 4))),
        spec,
        draw(st.sampled_from(USERS)),
        served_gpu_ms=draw(st.sampled_from([0, 0, HOUR_MS])),
    )


FRACTIONS = (125, 250, 400, 500, 600)


@st.composite
def with_fractions(draw: st.DrawFn, world: Snapshot) -> Snapshot:
    """The world, with some groups of pending jobs asking for parts of GPUs, and some of the running tasks dividing theirs."""

    def divided(group: TaskGroup) -> TaskGroup:
        if draw(st.integers(0, 2)) == 0:
            return group
        share = draw(st.sampled_from(FRACTIONS))
        asked = {"gpu_memory": Memory(80 * GIB * share // 1000)} if draw(st.integers(0, 4)) == 0 else {}
        fraction = None if asked else MilliGpu(share)
        devices = draw(st.sampled_from([1, 1, 2, 3]))
        shape = msgspec.structs.replace(group.shape, gpus=0, gpu_fraction=fraction, devices=devices, **asked)
        return msgspec.structs.replace(group, shape=shape)

    def changed(known: Job) -> Job:
        if known.phase == "pending":
            groups = tuple(divided(group) for group in known.spec.task_groups)
            return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))
        return known

    def sharers(known: Job) -> list[Job]:
        """The job; or one in its place that has a part of the first GPU or of the first two, at times beside another."""
        if known.phase == "pending" or draw(st.booleans()):
            return [changed(known)]
        share = MilliGpu(draw(st.sampled_from(FRACTIONS)))
        several = draw(st.booleans()) and all(len(task.devices) > 1 for task in known.placement)
        devices = 2 if several else 1
        held = tuple(
            msgspec.structs.replace(task, devices=task.devices[:devices], share=share) for task in known.placement
        )
        before = known.spec.task_groups[0]
        shape = Shape(gpu_fraction=share, devices=devices)
        group = TaskGroup("worker", before.replicas, shape, min_replicas=before.min_replicas)
        spec = msgspec.structs.replace(known.spec, task_groups=(group,))
        sharer = msgspec.structs.replace(known, placement=held, spec=spec)
        if share > 500 or draw(st.booleans()):
            return [sharer]
        return [sharer, msgspec.structs.replace(sharer, name=JobName(f"{known.name}-beside"))]

    nodes = [
        msgspec.structs.replace(
            known, gpus=tuple(msgspec.structs.replace(gpu, memory=Memory(80 * GIB)) for gpu in known.gpus)
        )
        for known in world.nodes
    ]
    return snapshot_of(world.time, nodes, [sharer for known in world.jobs for sharer in sharers(known)])


@st.composite
def sharing_policies(draw: st.DrawFn, policy: Policy) -> Policy:
    """The policy, with GPUs shared in some pools, and the teams at times apart."""
    groups = draw(
        st.sampled_from(
            [
                (),
                (TrustGroup("l", (QueueName("left"),)),),
                (TrustGroup("one", (QueueName("r1"),)), TrustGroup("two", (QueueName("r2"), QueueName("left")))),
            ]
        )
    )
    pools = draw(st.sampled_from([("h100",), ("a100", "h100"), ("a100", "h100")]))
    mode: SharingMode = draw(st.sampled_from(["mps", "time-slicing"]))
    times = draw(st.sampled_from([1.0, 1.0, 1.5, 2.0])) if mode == "time-slicing" else 1.0
    sharing = SharingPolicy("parts", pools, mode, groups, times)
    return policy_of(policy.queues, policy.priority_classes, policy.scheduling, (sharing,))


@st.composite
def snapshots(
    draw: st.DrawFn,
    nodes_max: int = 6,
    jobs_max: int = 7,
    sizes: Sequence[int] = (1, 2, 4),
    elastic: bool = False,
    close: bool = False,
    inner: bool = False,
    held_one_in: int = 3,
) -> Snapshot:
    """A cluster of two types with some nodes closed or partly held by running jobs, and a few pending gangs."""
    nodes = []
    for index in range(draw(st.integers(1, nodes_max))):
        gpu_type = draw(st.sampled_from(TYPES))
        rack, block = f"{gpu_type}-r{index // 2}", f"{gpu_type}-b{index // 4}"
        made = node(f"n{index}", draw(st.sampled_from([2, 4])), gpu_type, rack=rack, block=block, cpu=16)
        nodes.append(made)
    running = [draw(runners(on, elastic)) for on in nodes if draw(st.integers(1, held_one_in)) == 1]
    pending = [draw(jobs(number, sizes, elastic, close, inner)) for number in range(draw(st.integers(0, jobs_max)))]
    return snapshot_of(Instant(1000), nodes, [*running, *pending])


@st.composite
def with_sets(draw: st.DrawFn, world: Snapshot) -> Snapshot:
    """The world, with some groups limited to one of three sets of its nodes: overlapping, nested or apart, as it comes."""
    names = [known.name for known in world.nodes]
    sets = [
        NodeSet(name, tuple(draw(st.lists(st.sampled_from(names), unique=True, min_size=1))))
        for name in ("sa", "sb", "sc")
    ]

    def limited(known: Job) -> Job:
        groups = tuple(
            msgspec.structs.replace(group, nodes=draw(st.sampled_from(["", "sa", "sb", "sc"])))
            for group in known.spec.task_groups
        )
        return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))

    return snapshot_of(world.time, world.nodes, [limited(known) for known in world.jobs], world.in_flight, sets)


PORT = "hostPort/TCP/8080"


@st.composite
def with_resources(draw: st.DrawFn, world: Snapshot) -> Snapshot:
    """The world, with tasks that take network cards, places for pods, and a port; and nodes that have a few more than are held."""

    def asking(known: Job) -> Job:
        groups = tuple(
            msgspec.structs.replace(group, shape=msgspec.structs.replace(group.shape, resources=draw(asked(group))))
            for group in known.spec.task_groups
        )
        return msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, task_groups=groups))

    def asked(group: TaskGroup) -> st.SearchStrategy[Amounts]:
        cards, places = st.sampled_from([0, 0, 1, 2]), st.sampled_from([0, 1, 1])
        # On one node only one task of a gang can have the port.
        port = st.sampled_from([0, 0, 0, WHOLE_PORT if group.replicas == 1 else 0])
        drawn = st.fixed_dictionaries({"rdma/hca": cards, "pods": places, PORT: port})
        return drawn.map(lambda amounts: amounts_of({name: amount for name, amount in amounts.items() if amount}))

    jobs = [asking(known) for known in world.jobs]
    held = {known.name: beside_of(()) for known in world.nodes}
    for known in jobs:
        shapes = {group.name: group.shape for group in known.spec.task_groups}
        for task in known.placement:
            held[task.node] += beside_of([shapes[task.group]])

    def having(known: Node) -> Node:
        has = {name: held[known.name][name] + draw(st.integers(0, 3)) for name in ("rdma/hca", "pods")}
        return msgspec.structs.replace(known, resources=amounts_of(has))

    return snapshot_of(world.time, list(map(having, world.nodes)), jobs, world.in_flight, world.node_sets)


@st.composite
def runners(draw: st.DrawFn, on: Node, elastic: bool = False) -> Job:
    """A running job of one task on a node; or of a task for each GPU, of which some may leave or join."""
    gpus = draw(st.integers(1, len(on.gpus)))
    in_parts = elastic and draw(st.booleans())
    group = TaskGroup("worker", 1, Shape(gpus))
    if in_parts:
        least, most = draw(st.integers(1, gpus)), gpus + draw(st.integers(0, 3))
        group = TaskGroup("worker", most, Shape(1), min_replicas=least)
    spec = JobSpec(
        QueueName(draw(st.sampled_from(["left", "left", "r1", "r2"]))),
        (group,),
        draw(st.sampled_from(["training", "training", "batch", "inference"])),
    )
    devices = [gpu.id for gpu in on.gpus[:gpus]]
    held = [(device,) for device in devices] if in_parts else [tuple(devices)]
    placement = tuple(TaskPlacement("worker", index, on.name, mine) for index, mine in enumerate(held))
    started = Instant(-HOUR_MS * draw(st.integers(0, 3)))
    return Job(JobName(f"run-{on.name}"), started, spec, USERS[1], "running", 1, started, placement)
