"""Judges promises of what is not there yet: instances that are made, or GPUs that become whole, once others have left.

Part of the checker.

A GPU that is pledged is for nobody else until it has been partitioned; its changes of the hour are taken, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from solver.plan.plan import Bind, Evict, Nominate, Plan, Repartition, Withdraw
from solver.plan.violation import Violation
from solver.rules.division import MigGeometry
from solver.rules.policy import Policy
from solver.world.cluster import DeviceId, MigInstance, Node
from solver.world.mig_table import MODELS, MigProfile
from solver.world.snapshot import Snapshot
from solver.world.workload import JobName, TaskPlacement

HOUR_MS = 3_600_000
PROFILES: dict[str, dict[str, MigProfile]] = {
    model.name: {profile.name: profile for profile in model.profiles} for model in MODELS
}

Wanted = dict[DeviceId, list[MigInstance] | None]
"""By GPU the instances that are promised on it; None: it is promised as a whole."""


def unmade(snapshot: Snapshot, tasks: Sequence[TaskPlacement]) -> Wanted:
    """What of these tasks is on GPUs that have to be partitioned anew for them."""
    there: dict[DeviceId, set[MigInstance] | None] = {}
    for node in snapshot.nodes:
        for gpu in node.gpus:
            there[gpu.id] = None if gpu.instances is None else set(gpu.instances)
    for job in snapshot.jobs:
        for task in job.placement:
            if task.mig is not None and task.mig.gpu in there:
                there[task.mig.gpu] = (there[task.mig.gpu] or set()) | {task.mig.instance}
    wanted: Wanted = {}
    for task in tasks:
        wholes = task.devices if task.mig is None else ()
        wanted.update({device: None for device in wholes if there.get(device) is not None})
        if task.mig is not None and task.mig.gpu in there and task.mig.instance not in (there[task.mig.gpu] or ()):
            wanted.setdefault(task.mig.gpu, [])
    for task in tasks:
        found = wanted.get(task.mig.gpu) if task.mig is not None else None
        if task.mig is not None and found is not None:
            found.append(task.mig.instance)
    return wanted


def pledges_before(snapshot: Snapshot) -> dict[DeviceId, JobName]:
    """GPUs that were pledged before this round, each with to whom."""
    return {
        device: intent.job for intent in snapshot.in_flight.nominations for device in unmade(snapshot, intent.tasks)
    }


def pledge_violations(snapshot: Snapshot, policy: Policy, plan: Plan) -> Iterator[Violation]:
    """S1 and S6 for GPUs that are promised to somebody for whom they have to be partitioned anew."""
    court = _Court(snapshot, policy, plan)
    yield from court.old()
    yield from court.new()
    yield from court.changes()


@dataclass(slots=True)
class _Court:
    snapshot: Snapshot
    policy: Policy
    plan: Plan
    nodes: dict[DeviceId, Node] = field(init=False)
    pools: dict[str, MigGeometry] = field(init=False)
    before: dict[DeviceId, JobName] = field(init=False)
    promised: dict[DeviceId, JobName] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = {gpu.id: node for node in self.snapshot.nodes for gpu in node.gpus}
        self.pools = {known.pool: known for known in self.policy.mig}
        done = {step.job for step in self.plan.steps if isinstance(step, Bind | Withdraw)}
        self.before = {gpu: job for gpu, job in pledges_before(self.snapshot).items() if job not in done}

    def old(self) -> Iterator[Violation]:
        """What is pledged already stays so."""
        for step in self.plan.steps:
            if isinstance(step, Repartition) and step.device in self.before:
                yield Violation("S6", step.device, f"is partitioned while {self.before[step.device]} waits for it")
        yield from self._shared()

    def new(self) -> Iterator[Violation]:
        """What is promised now can be made once those have left who were asked to."""
        changed = {step.device for step in self.plan.steps if isinstance(step, Repartition)}
        for step in self._placing():
            wanted = unmade(self.snapshot, step.tasks) if isinstance(step, Nominate) else {}
            for device, instances in wanted.items():
                known = self.pools.get(self.nodes[device].pool)
                changes = known.changes if known and known.mode != "fixed" else None
                if known is None or changes is None or changes.drain != "entitled":
                    yield Violation("S6", device, "is promised as what it is not, where nobody has to leave for that")
                elif device in changed or device in self.promised:
                    yield Violation("S6", device, "is partitioned for somebody else, and promised as something new")
                elif not self._can_be(known, device, instances, step.job):
                    yield Violation("S6", device, "can't become what it is promised as beside those who stay")
                self.promised[device] = step.job

    def changes(self) -> Iterator[Violation]:
        """What is pledged is counted as changed."""
        now = self.snapshot.time
        made = [step.device for step in self.plan.steps if isinstance(step, Repartition) and step.device in self.nodes]
        count = Counter(self.nodes[device].pool for device in (*made, *self.promised))
        waiting = Counter(self.nodes[device].pool for device in self.before)
        for pool, more in count.items():
            counters = [
                counter.count
                for counter in self.snapshot.in_flight.counters
                if (counter.name, counter.subject) == ("mig-changes", pool) and now - counter.window_start < HOUR_MS
            ]
            most = self.pools[pool].changes_max if pool in self.pools else 0
            if sum(counters) + waiting[pool] + more > most:
                yield Violation("S6", pool, f"more GPUs are partitioned or pledged than {most} within an hour")

    def _shared(self) -> Iterator[Violation]:
        """Nobody else is given anything of such a GPU, but what was promised before."""
        earlier = {intent.job: intent.tasks for intent in self.snapshot.in_flight.nominations}
        for step in self._placing():
            for task in step.tasks:
                for device in _gpus(task):
                    owner = self.before.get(device, step.job)
                    if owner != step.job and task not in earlier.get(step.job, ()):
                        yield Violation("S1", step.job, f"GPU {device} is promised to {owner}, and partitioned for it")

    def _placing(self) -> Iterator[Bind | Nominate]:
        return (step for step in self.plan.steps if isinstance(step, Bind | Nominate))

    def _can_be(self, known: MigGeometry, device: DeviceId, wanted: list[MigInstance] | None, taker: JobName) -> bool:
        staying = self._staying(taker)[device]
        if staying is None or wanted is None:
            return wanted is None and staying == set()
        beside = [*staying, *wanted]
        profiles = PROFILES[known.model]
        if len(set(beside)) < len(beside) or not _fits(profiles, beside):
            return False
        layouts = [_names(layout) for layout in known.layouts]
        return known.mode == "free" or any(_completes(profiles, beside, layout) for layout in layouts)

    def _staying(self, taker: JobName) -> defaultdict[DeviceId, set[MigInstance] | None]:
        """By GPU the instances of those who stay, or were promised or given them; None: somebody stays on it as a whole."""
        asked = {intent.job for intent in self.snapshot.in_flight.intents if intent.kind == "stop"}
        leaving = asked | {step.job for step in self.plan.steps if isinstance(step, Evict)}
        gone = {step.job for step in self.plan.steps if isinstance(step, Withdraw)} | {taker}
        tasks = [task for job in self.snapshot.jobs if job.name not in leaving for task in job.placement]
        for intent in self.snapshot.in_flight.intents:
            promised = intent.kind == "nominate"
            if intent.job not in (gone if promised else leaving):
                tasks += intent.tasks
        for step in self._placing():
            tasks += step.tasks if step.job != taker else ()
        found: defaultdict[DeviceId, set[MigInstance] | None] = defaultdict(set)
        for task in tasks:
            if task.mig is None:
                found.update(dict.fromkeys(task.devices))
        for task in tasks:
            on = found[task.mig.gpu] if task.mig else None
            if task.mig and on is not None:
                on.add(task.mig.instance)
        return found


def _gpus(task: TaskPlacement) -> tuple[DeviceId, ...]:
    return task.devices if task.mig is None else (task.mig.gpu,)


def _fits(profiles: Mapping[str, MigProfile], instances: Iterable[MigInstance]) -> bool:
    """Whether one GPU can have all of these at a time."""
    end, media = 0, 0
    for instance in sorted(instances, key=lambda instance: instance.start):
        profile = profiles.get(instance.profile)
        if profile is None or instance.start not in profile.starts or instance.start < end:
            return False
        end, media = instance.start + profile.memory_slices, media + ("me" in profile.attributes)
    return media <= 1


def _completes(profiles: Mapping[str, MigProfile], has: Sequence[MigInstance], layout: Counter[str]) -> bool:
    """Whether the other instances of a layout find places beside those that are there."""
    missing = layout.copy()
    missing.subtract(instance.profile for instance in has)
    if any(count < 0 for count in missing.values()):
        return False
    name = next((name for name, count in missing.items() if count), None)
    if name is None:
        return True
    tried = ([*has, MigInstance(name, start)] for start in profiles[name].starts)
    return any(_fits(profiles, more) and _completes(profiles, more, layout) for more in tried)


def _names(layout: str) -> Counter[str]:
    names: Counter[str] = Counter()
    for part in layout.split("+ "):
        count, _, name = part.strip().rpartition("x ")
        names[name.strip()] += int(count or 1)
    return names
