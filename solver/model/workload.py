"""Jobs: what is asked for (the spec), and where it stands (phase, placement)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, NewType, Self

import msgspec

from solver.model.cluster import LEVELS, DeviceId, Level, MigInstance, NodeName, SpreadLevel, is_wider
from solver.model.document import Document
from solver.model.quantities import MILLI_PER_GPU, Duration, Instant, MilliGpu
from solver.model.shape import Shape, SharingMode

JobName = NewType("JobName", str)
QueueName = NewType("QueueName", str)

Phase = Literal["pending", "starting", "running", "stopping"]
"""Only live jobs are in a snapshot. `starting` and `stopping` hold their devices until the backend confirms."""


Wish = Level | tuple[Level, ...]
"""The level, or the levels, of which one domain is best."""


def levels_of(wish: Wish | None) -> tuple[Level, ...]:
    """Levels as they are written, the closest first."""
    written = (wish,) if isinstance(wish, str) else wish or ()
    return tuple(level for level in LEVELS if level in written)


class Bundle(Document, frozen=True):
    """Each `tasks` consecutive tasks of a group, counted from index 0, keep together; the last may be fewer.

    `within`: in one domain of this level, or the job waits; None: they may be apart. `preferred`: in one domain of these levels
    if that can be.
    """

    tasks: int
    within: Level | None = None
    preferred: Wish | None = None

    @property
    def wishes(self) -> tuple[Level, ...]:
        """The preferred levels, the closest first; a level that it has in any case is no wish."""
        return tuple(level for level in levels_of(self.preferred) if is_wider(self.within, level))


class Together(Document, frozen=True):
    """All tasks of these groups keep together: in one domain of `within`, and of `preferred` if that can be, as a bundle does.

    Of several `units` each keeps together by itself: they are equal, and the first has the first tasks of every group. The gang
    starts with `min_units` of them (None: all), each whole, and has tasks of these groups only by whole units.
    """

    groups: tuple[str, ...]
    within: Level | None = None
    preferred: Wish | None = None
    units: int = 1
    min_units: int | None = None

    @property
    def wishes(self) -> tuple[Level, ...]:
        """The preferred levels, the closest first; a level that it has in any case is no wish."""
        return tuple(level for level in levels_of(self.preferred) if is_wider(self.within, level))


class Spread(Document, frozen=True):
    """At most `max_per_domain` tasks in each domain of a level; `node` is a host."""

    level: SpreadLevel
    max_per_domain: int


def _in_units(group: TaskGroup, known: Together) -> TaskGroup:
    """A group that is in units with others: what each has of its tasks, and with how few it starts."""
    size, rest = divmod(group.replicas, known.units)
    if rest or not size or group.min_replicas is not None or group.replica_step > 1:
        return group  # settled before, or wrong, which documents say
    least = None if known.min_units is None else size * min(known.min_units, known.units)
    return msgspec.structs.replace(group, min_replicas=least, replica_step=size)


Bundled = tuple[tuple[int, Level], ...]
"""Bundles that have to be together: how many tasks, and the level of which they share a domain; the largest first."""


class KeptGroups(NamedTuple):
    """Task groups of a job, by their numbers, that have to be together in one domain of a level.

    `sizes`: each so many tasks of the groups are, unit by unit; (): all of them.
    """

    groups: tuple[int, ...]
    level: Level
    sizes: tuple[int, ...] = ()

    def times(self, tasks: Sequence[int]) -> int:
        """How many units so many tasks of all groups of the job are."""
        if not self.sizes:
            return 1
        return max(-(-tasks[group] // size) for group, size in zip(self.groups, self.sizes, strict=True))

    def size(self, group: int, tasks: int) -> int:
        """Tasks of a group that are together, where it has so many."""
        return self.sizes[self.groups.index(group)] if self.sizes else tasks


class Unit(NamedTuple):
    """Tasks that come and go together: of these groups, by their numbers, so many each.

    `numbered`: it matters which are together: the first ones of every group, then the next. Else any so many of the one group do.
    """

    groups: tuple[int, ...]
    sizes: tuple[int, ...]
    numbered: bool = False


class GroupTopology(Document, frozen=True):
    """What one task group asks for by itself.

    `required`: all its tasks in one domain; `preferred`: the same, if that can be; `group`: the same for its bundles, and for
    bundles of these.
    """

    required: Level | None = None
    group: Bundle | tuple[Bundle, ...] | None = None
    spread: Spread | None = None
    preferred: Wish | None = None

    @property
    def wishes(self) -> tuple[Level, ...]:
        """The preferred levels, the closest first."""
        return levels_of(self.preferred)

    @property
    def keeps_near_or_apart(self) -> bool:
        """Whether it asks for anything at all."""
        return bool(self.required or self.group or self.spread or self.preferred)


class TaskGroup(Document, frozen=True):
    """Tasks of one role: `replicas` copies of one shape, or as few as `min_replicas`, on one GPU type and on nodes of `nodes`.

    `rejoin`: one that fails may begin again where it was, while the others run on. `launcher`: the job is judged by its one task.
    `replica_step`: beyond its least it has tasks only by so many at once, and gives up as many. A group that is in units with
    others has so many tasks in each.
    """

    name: str
    replicas: int
    shape: Shape
    command: tuple[str, ...] = ()
    min_replicas: int | None = None
    topology: GroupTopology = GroupTopology()
    rejoin: bool = False
    launcher: bool = False
    nodes: str = ""  # the name of a NodeSet of the snapshot; "": any will do
    replica_step: int = 1

    @property
    def least(self) -> int:
        """Tasks without which the gang does not start."""
        return self.replicas if self.min_replicas is None else self.min_replicas


PlacementStyle = Literal["pack", "spread"]


class TopologyRequest(Document, frozen=True):
    """`required`: all tasks of the job in one domain of that level, or it waits. `preferred`: tried for, never waited for;
    of several levels each counts. `communication` bound: it is as fast as its slowest link, and pays for a slow one.
    `placement`: as few nodes as can be, or as many; None: what its class says.

    `group`: how the tasks of each group are bundled that does not say it itself. `spread` counts the tasks of all groups.
    `together`: some of the groups keep to one domain.
    """

    required: Level | None = None
    preferred: Wish | None = None
    group: Bundle | tuple[Bundle, ...] | None = None
    spread: Spread | None = None
    communication: Literal["normal", "bound"] = "normal"
    placement: PlacementStyle | None = None
    together: tuple[Together, ...] = ()

    @property
    def wishes(self) -> tuple[Level, ...]:
        """The preferred levels, the closest first."""
        return levels_of(self.preferred)

    @property
    def levels(self) -> frozenset[Level]:
        """The levels that make a difference to it."""
        every = LEVELS if self.communication == "bound" else self.wishes
        return frozenset((*every, *((self.required,) if self.required else ())))


TaskSignal = Literal["", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP"]


class Checkpoint(Document, frozen=True):
    """How often a job saves its work, and how long it needs to save it once more when it is asked to leave.

    `storage`: the CheckpointPolicy by which that is kept; "": the one named `default`, if there is one. `signal`: what its
    tasks are sent when they are to save; "": nothing.
    """

    interval: Duration
    grace: Duration | None = None
    storage: str = ""
    signal: TaskSignal = ""


class TimeLimitWarning(Document, frozen=True):
    """So long `before` its time limit a job is told that it is near. `signal`: what its tasks are sent then; "": nothing."""

    before: Duration
    signal: TaskSignal = ""


StuckAction = Literal["notify", "retry", "fail"]


class Stuck(Document, frozen=True):
    """A job that has made no progress for `after` is dumped into its log, and then what `action` says follows.

    `signal`: what its tasks are sent with the dump, such as one at which Python writes down its stacks; "": nothing.
    """

    after: Duration
    action: StuckAction = "notify"
    signal: TaskSignal = ""


JobType = Literal["gang", "service", "interactive"]
"""`service`: replicas that are each of their own and have no end. `interactive`: a person waits for it, and it ends by itself."""

INTERACTIVE_TIME_LIMIT = Duration(8 * 3_600_000)
"""How long an interactive job may run where neither it nor its class says so."""

DependencyCondition = Literal["afterok", "afterany", "afternotok"]
"""How what a job depends on must have ended: with success, in any way, without success."""


class Dependency(Document, frozen=True):
    """The job begins only once another one, or a whole array or pipeline, has ended in this way."""

    job: JobName
    condition: DependencyCondition = "afterok"

    def __str__(self) -> str:
        return f"{self.condition} {self.job}"


class JobArray(Document, frozen=True):
    """The job is submitted once for each index, as jobs of their own; at most `max_running` of them run at a time."""

    indices: str
    max_running: int | None = None


class SecretUse(Document, frozen=True):
    """A secret that the tasks are given: as the variable `env`, or as the file `file` of the folder QUORATE_SECRETS.

    `key`: which part of it, where it has several; "": it has none.
    """

    name: str
    key: str = ""
    env: str = ""
    file: str = ""

    def __str__(self) -> str:
        return f"{self.name}/{self.key}" if self.key else self.name


class Container(Document, frozen=True):
    """In what tasks run: `image`, with the host's network or none; `read_only`: they may write to folders of their own alone."""

    image: str
    network: Literal["host", "none"] = "host"
    read_only: bool = False


class JobSpec(Document, frozen=True):
    """The `spec` of a Job document. A service that says no `min_replicas` starts with one.

    `time_limit`: the longest all of its tasks may run; None: what its class says. `checkpoint` None: it saves nothing.
    `fallback_after`: how long it waits for its first GPU type before it takes another; None: what its class says.
    `finish_by`: when it is to have ended, or so long after its submission `finish_within`; it orders the job among equals of its
    queue, and promises nothing.
    `data`: what it reads, and is best near; never waited for. `idle_limit`: the longest an interactive job may do nothing; None:
    what its class says. Rounds read none of `depends_on` (what must wait for others is not shown to them), `array` (submitted as
    its elements), `retry_policy` (a name), `secrets`, `time_limit_warning`, `stuck`, `container`, `working_directory`
    (an absolute path, in which tasks begin; "": each in a folder of its own), and `terminal` (of its one task).
    """

    queue: QueueName
    task_groups: tuple[TaskGroup, ...]
    priority_class: str = ""
    topology: TopologyRequest = TopologyRequest()
    time_limit: Duration | None = None
    checkpoint: Checkpoint | None = None
    fallback_after: Duration | None = None
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}  # noqa: RUF012  (msgspec copies an empty default for every instance)
    type: JobType = "gang"
    data: tuple[str, ...] = ()
    idle_limit: Duration | None = None
    depends_on: tuple[Dependency, ...] = ()
    array: JobArray | None = None
    retry_policy: str = ""
    secrets: tuple[SecretUse, ...] = ()
    time_limit_warning: TimeLimitWarning | None = None
    stuck: Stuck | None = None
    terminal: bool = False
    container: Container | None = None
    working_directory: str = ""
    finish_by: Instant | None = None
    finish_within: Duration | None = None

    def __post_init__(self) -> None:
        """Settle with how few replicas a service starts, and what units have of each group: every reader counts the same."""
        if self.type == "service" and any(group.min_replicas is None for group in self.task_groups):
            settled = (
                group if group.min_replicas is not None else msgspec.structs.replace(group, min_replicas=1)
                for group in self.task_groups
            )
            msgspec.structs.force_setattr(self, "task_groups", tuple(settled))
        for known in self.topology.together:
            if known.units > 1:
                cut = (_in_units(group, known) if group.name in known.groups else group for group in self.task_groups)
                msgspec.structs.force_setattr(self, "task_groups", tuple(cut))

    def to_finish_by(self, submitted_at: Instant) -> Instant | None:
        """When it is to have ended if it was submitted then; None: it does not say."""
        return submitted_at.after(self.finish_within) if self.finish_within is not None else self.finish_by

    @property
    def gpus(self) -> MilliGpu:
        """GPUs of the whole gang, an elastic one at its full size; those asked for by their memory are not counted."""
        return MilliGpu(sum(group.replicas * group.shape.cost for group in self.task_groups))

    @property
    def tasks(self) -> int:
        """Tasks of the whole gang, an elastic one at its full size."""
        return sum(group.replicas for group in self.task_groups)

    @property
    def launcher(self) -> TaskGroup | None:
        """The group that starts the others' work, as mpirun does; None: each task runs its own command."""
        return next((group for group in self.task_groups if group.launcher), None)

    @property
    def effective_topology(self) -> TopologyRequest:
        """What the topology request demands in fact: a single task is in one domain of any level by itself."""
        return TopologyRequest() if self.tasks == 1 else self.topology

    def bundles_of(self, group: TaskGroup) -> tuple[Bundle, ...]:
        """How the tasks of a group are bundled, the largest bundles first: each is cut into the next ones; (): they are not."""
        own = group.topology
        written = own.group or (None if own.required else self.topology.group)
        bundles = (written,) if isinstance(written, Bundle) else written or ()
        inner = tuple(sorted(bundles, key=lambda bundle: -bundle.tasks))
        whole = (Bundle(group.replicas, own.required, own.preferred),) if own.required or own.preferred else ()
        return (*whole, *inner)

    def kept_in_bundles(self, group: TaskGroup) -> Bundled:
        """The bundles of a group without which it waits, the largest first."""
        return tuple(
            (min(bundle.tasks, group.replicas), bundle.within) for bundle in self.bundles_of(group) if bundle.within
        )

    @property
    def kept_groups(self) -> tuple[KeptGroups, ...]:
        """The groups that have to be together."""
        return tuple(
            KeptGroups(groups, known.within, self._sizes_of(groups) if known.units > 1 else ())
            for known in self.topology.together
            if known.within
            for groups in [self._numbers_of(known)]
        )

    def _numbers_of(self, known: Together) -> tuple[int, ...]:
        return tuple(number for number, group in enumerate(self.task_groups) if group.name in known.groups)

    def _sizes_of(self, groups: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.task_groups[number].replica_step for number in groups)

    @property
    def units(self) -> tuple[Unit, ...]:
        """How the tasks of all groups come and go: of each group by itself, or of several together."""
        shared = [self._numbers_of(known) for known in self.topology.together if known.units > 1]
        firsts = {groups[0]: groups for groups in shared if groups}
        others = {number for groups in shared for number in groups[1:]}
        every = (firsts.get(number, (number,)) for number in range(len(self.task_groups)) if number not in others)
        return tuple(Unit(groups, self._sizes_of(groups), groups[0] in firsts) for groups in every)

    def most_more(self, unit: Unit) -> int:
        """By how many units the gang may be larger than the least."""
        groups = [self.task_groups[number] for number in unit.groups]
        return min((group.replicas - group.least) // size for group, size in zip(groups, unit.sizes, strict=True))

    def one_of(self, unit: Unit) -> JobSpec:
        """A job that is one of these units and nothing else."""
        groups = tuple(
            msgspec.structs.replace(self.task_groups[number], replicas=size, min_replicas=size)
            for number, size in zip(unit.groups, unit.sizes, strict=True)
        )
        return msgspec.structs.replace(self, task_groups=groups)

    def unit_number(self, known: Together, group: str, index: int) -> int:
        """In which unit of groups that keep together a task is; 0 where all their tasks do."""
        if known.units == 1:
            return 0
        return index // next(each.replica_step for each in self.task_groups if each.name == group)

    def together_of(self, group: TaskGroup) -> Together | None:
        """With which groups a group keeps together; None: with none. A single task is together with itself."""
        return next((known for known in self.topology.together if group.name in known.groups), None)

    def unit_of(self, group: str, index: int) -> tuple[str, int] | None:
        """The unit of several groups that a task is in: the first of these, and the unit's number; None: it is in none."""
        known = next((each for each in self.topology.together if each.units > 1 and group in each.groups), None)
        return (known.groups[0], self.unit_number(known, group, index)) if known else None

    def is_in_units(self, group: TaskGroup) -> bool:
        """Whether tasks of a group come and go with those of others."""
        known = self.together_of(group)
        return known is not None and known.units > 1

    @property
    def has_inner_wishes(self) -> bool:
        """Whether some of its tasks are best together, otherwise than all of them."""
        return any(known.wishes for known in self.topology.together) or any(
            bundle.wishes for group in self.task_groups for bundle in self.bundles_of(group)
        )

    @property
    def without_together(self) -> JobSpec:
        """The same job, whose groups may be apart."""
        return msgspec.structs.replace(self, topology=msgspec.structs.replace(self.topology, together=()))

    @property
    def with_wishes_required(self) -> JobSpec:
        """The same job, whose groups and bundles have to be as close as they are best."""

        def firm(bundle: Bundle) -> Bundle:
            return Bundle(bundle.tasks, bundle.wishes[0]) if bundle.wishes else bundle

        def firm_group(group: TaskGroup) -> TaskGroup:
            bundles, own = tuple(firm(bundle) for bundle in self.bundles_of(group)), group.topology
            return msgspec.structs.replace(group, topology=GroupTopology(group=bundles or None, spread=own.spread))

        groups = tuple(firm_group(group) for group in self.task_groups)
        together = tuple(
            msgspec.structs.replace(known, within=known.wishes[0], preferred=None) if known.wishes else known
            for known in self.topology.together
        )
        topology = msgspec.structs.replace(self.topology, group=None, together=together)
        return msgspec.structs.replace(self, task_groups=groups, topology=topology)


class MigSlot(Document, frozen=True):
    """A MIG instance that is a task's device: on which GPU, which, and what part of the GPU it counts as."""

    gpu: DeviceId
    instance: MigInstance
    cost: MilliGpu


class TaskPlacement(Document, frozen=True):
    """Where one task of a gang runs. `index` counts within its group.

    `share`: how much it has of each of its devices, beside others, and `sharing` how; None: its devices are its own.
    `mig`: its device is this instance, and where it has several, `mig_beside` are the others; None: its devices are GPUs.
    """

    group: str
    index: int
    node: NodeName
    devices: tuple[DeviceId, ...] = ()
    share: MilliGpu | None = None
    sharing: SharingMode | None = None
    mig: MigSlot | None = None
    mig_beside: tuple[MigSlot, ...] = ()

    @property
    def slots(self) -> tuple[MigSlot, ...]:
        """Its MIG instances."""
        return () if self.mig is None else (self.mig, *self.mig_beside)

    @property
    def on_gpus(self) -> tuple[DeviceId, ...]:
        """The GPUs on which it is, each once: its own, or those with its instances."""
        return self.devices if self.mig is None else tuple(dict.fromkeys(slot.gpu for slot in self.slots))

    def on_slots(self, slots: Sequence[MigSlot]) -> Self:
        """The same task with these MIG instances and no other device."""
        devices = tuple(slot.instance.id_on(slot.gpu) for slot in slots)
        first, others = (slots[0], tuple(slots[1:])) if slots else (None, ())
        return msgspec.structs.replace(self, devices=devices, mig=first, mig_beside=others)

    @property
    def gpus(self) -> MilliGpu:
        """GPUs that it holds."""
        if self.mig is not None:
            return MilliGpu(sum(slot.cost for slot in self.slots))
        return MilliGpu(len(self.devices) * (MILLI_PER_GPU if self.share is None else self.share))


class QuietGpus(Document, frozen=True):
    """All GPUs of a job have been less active than so many percent since then; a fact for reviews of IdlePolicies."""

    below: float
    since: Instant


class KubernetesNamespace(NamedTuple):
    """What rules for namespaces go by: its name, and its labels, each as KEY=VALUE."""

    name: str
    labels: tuple[str, ...] = ()


class Job(Document, frozen=True):
    """A live job in a snapshot. `attempt` counts starts: it rises by one each time the gang is bound.

    `time_limit`: of this attempt; None: it may run for ever, or is not bound. `evicted_at`: oldest first. `boosted`: it is to start
    before others of its queue. `served_gpu_ms`: what its ended attempts ran. `saved_at`: until when this attempt's work is saved,
    its start at least; None: unknown. `leaves` not: others than policy forbid it; unpromised: its promises end with its tasks.
    `held_by`: what forbids it, such as PodDisruptionBudgets, where that yields to a guarantee which has waited for too long.
    `namespace`: of Kubernetes; "": its pods are in none, and no rule for namespaces concerns it. `namespace_labels`: those that the
    namespace has, each as KEY=VALUE, sorted. `queue_called`: how pods name the queue, where the policy says which is meant: "" is
    by no name at all, so that it is the default of their namespace; None: by its own name. For reviews; no round reads it.
    `quiet`: what its GPUs did lately, where that is told to those that plan; no round reads it.
    """

    name: JobName
    submitted_at: Instant
    spec: JobSpec
    user: str = ""
    phase: Phase = "pending"
    attempt: int = 0
    started_at: Instant | None = None
    placement: tuple[TaskPlacement, ...] = ()
    time_limit: Duration | None = None
    evicted_at: tuple[Instant, ...] = ()
    served_gpu_ms: int = 0
    boosted: bool = False
    saved_at: Instant | None = None
    leaves: Literal["freely", "unpromised", "not"] = "freely"
    held_by: str = ""
    namespace: str = ""
    quiet: tuple[QuietGpus, ...] = ()
    namespace_labels: tuple[str, ...] = ()
    queue_called: str | None = None

    @property
    def kubernetes_namespace(self) -> KubernetesNamespace:
        """That of its pods; with no name where it has none."""
        return KubernetesNamespace(self.namespace, self.namespace_labels)

    @property
    def finish_by(self) -> Instant | None:
        """When it is to have ended."""
        return self.spec.to_finish_by(self.submitted_at)

    @property
    def waits_since(self) -> Instant:
        """From when on it has waited, if it waits: its submission, or when it was last asked to leave."""
        return max((self.submitted_at, *self.evicted_at[-1:]))

    @property
    def held(self) -> str:
        """What keeps it from leaving for any job but one whose guarantee has waited for too long; "": nothing does, or for ever."""
        return self.held_by if self.leaves == "not" else ""
