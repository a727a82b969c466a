"""Judges how a plan partitions GPUs, by plain intervals and the policy's own documents; shares no code with the model.

Only the table of profiles is the same, as data. It needs every bound job and node to be in the snapshot.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from solver.checker.case import JudgedPlan
from solver.checker.closeness import bundles
from solver.checker.pledges import Wanted, may_be_made, unmade
from solver.model.cluster import DeviceId, Gpu, MigInstance
from solver.model.mig_table import MODELS, MigProfile
from solver.model.shape import Shape
from solver.model.workload import Job, MigSlot, TaskPlacement
from solver.plan.plan import Bind, Nominate, Repartition
from solver.plan.violation import Violation
from solver.policy.division import MigGeometry

PROFILES: dict[str, dict[str, MigProfile]] = {
    model.name: {profile.name: profile for profile in model.profiles} for model in MODELS
}
SLICES = {model.name: model.memory_slices for model in MODELS}
HOUR_MS = 3_600_000

Instances = tuple[MigInstance, ...]


def mig_violations(case: JudgedPlan) -> Iterator[Violation]:
    """S1, S2, S5 and S6 for instances and the GPUs they lie on."""
    court = _Court(case)
    yield from court.changes()
    yield from court.changes_per_pool()
    yield from court.binds()


def has_its_instance(shape: Shape, task: TaskPlacement) -> bool:
    """S2: the task has one instance of the profile it asked for, and nothing else; or asked for none and has none."""
    if shape.mig is None or task.mig is None:
        return shape.mig is None and task.mig is None
    named = DeviceId(f"{task.mig.gpu}/{task.mig.instance.profile}@{task.mig.instance.start}")
    return task.devices == (named,) and task.share is None and task.mig.instance.profile == shape.mig


@dataclass(frozen=True)
class _Court:
    case: JudgedPlan

    @cached_property
    def pools(self) -> dict[str, MigGeometry]:
        """What policy says of the GPUs of each pool."""
        return {known.pool: known for known in self.case.policy.mig}

    @cached_property
    def made(self) -> dict[DeviceId, Instances | None]:
        """What the plan partitions GPUs into."""
        return {step.device: step.instances for step in self.case.steps(Repartition)}

    @cached_property
    def used(self) -> dict[DeviceId, set[MigInstance]]:
        """The instances that are somebody's, by GPU."""
        used: defaultdict[DeviceId, set[MigInstance]] = defaultdict(set)
        for task in (*self.case.mig_tasks, *self._asked):
            if task.mig is not None:
                used[task.mig.gpu].add(task.mig.instance)
        return dict(used)

    @cached_property
    def whole(self) -> set[DeviceId]:
        """Of GPUs on which instances are somebody's, given or made: those that are somebody's as a whole."""
        bound = (task.mig for step in self.case.steps(Bind) for task in step.tasks)
        divided = self.used.keys() | self.made.keys() | {slot.gpu for slot in bound if slot is not None}
        if not divided:
            return set()
        there = (task for job in self.case.snapshot.jobs for task in job.placement)
        tasks = (task for source in (there, self._asked) for task in source if task.mig is None)
        return {device for task in tasks for device in task.devices if device in divided}

    @cached_property
    def _divided(self) -> frozenset[DeviceId]:
        """GPUs that have instances, or are given some."""
        return frozenset((*self.case.ground.partitioned, *self.used, *self.made))

    @cached_property
    def _asked(self) -> list[TaskPlacement]:
        """Tasks in flight, but for what is promised and not there yet, or promised no more: that is nobody's (pledges)."""
        found: list[TaskPlacement] = []
        for intent in self.case.intents:
            if intent.kind == "nominate" and intent.job in self.case.withdrawn:
                continue
            later = unmade(self.case, intent.tasks) if intent.kind == "nominate" else {}
            gpus_of = ((task, {*task.devices, *((task.mig.gpu,) if task.mig else ())}) for task in intent.tasks)
            found += (task for task, gpus in gpus_of if gpus.isdisjoint(later))
        return found

    def after(self, device: DeviceId) -> Instances | None:
        """What a GPU is partitioned into once the plan's changes are made; None: it is whole."""
        if device in self.made:
            return self.made[device]
        if device not in self.used:
            return self.case.ground.partitioned.get(device)
        found = self.case.ground.gpus.get(device)
        return self._now(found[1]) if found else None

    def changes(self) -> Iterator[Violation]:
        """S6: every geometry is in the table and allowed by the pool, and nothing in use is touched."""
        for device, count in Counter(step.device for step in self.case.steps(Repartition)).items():
            if count > 1:
                yield Violation("S6", device, f"is partitioned {count} times")
        for step in self.case.steps(Repartition):
            node, gpu = self.case.ground.gpus.get(step.device, (None, None))
            if node is None or gpu is None or node.name != step.node:
                yield Violation("S6", step.device, f"is no GPU of node {step.node}")
            elif not gpu.healthy or not node.ready or node.cordoned:
                yield Violation("S6", step.device, "is not a healthy GPU of an open node")
            elif node.keeps_geometry:
                yield Violation("S6", step.device, "may not be partitioned anew: its node can't be now")
            else:
                yield from self._unlawful(step, gpu, self.pools.get(node.pool))

    def changes_per_pool(self) -> Iterator[Violation]:
        """S6: no more GPUs of a pool are changed within an hour than its policy says."""
        gpus = self.case.ground.gpus
        made = Counter(gpus[step.device][0].pool for step in self.case.steps(Repartition) if step.device in gpus)
        for pool, count in made.items():
            before = sum(
                counter.count
                for counter in self.case.snapshot.in_flight.counters
                if (counter.name, counter.subject) == ("mig-changes", pool)
                and self.case.snapshot.time - counter.window_start < HOUR_MS
            )
            known = self.pools.get(pool)
            most = known.changes_max if known else 0
            if before + count > most:
                yield Violation(
                    "S6", pool, f"{before} + {count} GPUs are partitioned anew within an hour, at most {most}"
                )

    def binds(self) -> Iterator[Violation]:
        """S1: a bound instance is there once the plan's changes are made, apart from all others; a whole GPU is whole."""
        used = defaultdict(set, {device: set(instances) for device, instances in self.used.items()})
        for slot in self._promised_no_more():
            used[slot.gpu].discard(slot.instance)  # Whether somebody else has the same is judged device by device.
        for step in self.case.placing:
            if isinstance(step, Nominate):
                yield from self._promise(step)
                continue
            yield from self._peers(self.case.jobs[step.job], step)
            for task in step.tasks:
                if task.mig is None:
                    yield from self._taken_whole(step.job, task, used)
                else:
                    yield from self._instance(step.job, task, used[task.mig.gpu], self.after)
                    used[task.mig.gpu].add(task.mig.instance)
        divided = {device for device, instances in used.items() if instances} - self.whole
        bound = (task for step in self.case.steps(Bind) for task in step.tasks if divided and task.mig is None)
        for device in sorted({device for task in bound for device in task.devices if device in divided}):
            yield Violation("S1", device, "would be held as a whole and hold instances")

    def _promised_no_more(self) -> Iterator[MigSlot]:
        """What was promised to who is bound now."""
        for intent in self.case.intents:
            if intent.kind == "nominate" and intent.job in self.case.bound:
                yield from (task.mig for task in intent.tasks if task.mig)

    def _promise(self, step: Nominate) -> Iterator[Violation]:
        """What is promised is there already: an instance that is somebody's, or a GPU that is whole.

        Or it is made later, where others may have to leave for it.
        """
        later, partitioned = self._made_later(step), self.case.ground.partitioned

        def there(device: DeviceId) -> Instances | None:
            return tuple(later[device] or ()) if device in later else self.after(device)

        for task in step.tasks:
            if task.mig is not None:
                yield from self._instance(step.job, task, (), there)
            elif not self._divided.isdisjoint(task.devices):
                known = ((device, self.made.get(device, partitioned.get(device))) for device in task.devices)
                divided = [device for device, instances in known if instances is not None and device not in later]
                if divided:
                    yield Violation("S1", step.job, f"GPU {divided[0]} is in MIG mode and promised as a whole")

    def _made_later(self, step: Nominate) -> Wanted:
        """What of a promise may be made once others have left; whether it can be is for pledges."""
        wanted = unmade(self.case, step.tasks)
        return {device: found for device, found in wanted.items() if self._may_be_made(device, found)}

    def _may_be_made(self, device: DeviceId, instances: list[MigInstance] | None) -> bool:
        known = self.pools.get(self.case.ground.gpus[device][0].pool)
        return known is not None and may_be_made(self.case, known, device, instances)

    def _unlawful(self, step: Repartition, gpu: Gpu, known: MigGeometry | None) -> Iterator[Violation]:
        now, then = set(self._now(gpu) or ()), set(step.instances or ())
        if known is None or known.mode == "fixed":
            yield Violation("S6", step.device, "may not be partitioned anew: its pool's policy does not say so")
            return
        if step.instances is not None:
            yield from self._impossible(step, known)
        if set(step.destroys) != now - then:
            yield Violation("S6", step.device, "destroys other instances than it says")
        if not self.used.get(step.device, set()) <= then:
            yield Violation("S6", step.device, "would lose an instance that is in use")
        if step.device in self.whole:
            yield Violation("S6", step.device, "is partitioned while a job holds it")

    def _impossible(self, step: Repartition, known: MigGeometry) -> Iterator[Violation]:
        end, media = 0, 0
        for instance in sorted(step.instances or (), key=lambda instance: instance.start):
            profile = PROFILES.get(known.model, {}).get(instance.profile)
            if profile is None or instance.start not in profile.starts:
                yield Violation("S6", step.device, f"a {known.model} has no {instance.profile} at {instance.start}")
                continue
            media += "me" in profile.attributes
            if instance.start < end or media > 1:
                yield Violation("S6", step.device, f"{instance.profile} at {instance.start} takes what another has")
            end = instance.start + profile.memory_slices
        names = Counter(instance.profile for instance in step.instances or ())
        if known.mode == "bounded" and names not in [_counted(layout) for layout in known.layouts]:
            yield Violation("S6", step.device, "gets a layout that its pool's policy does not list")

    def _instance(
        self, job: str, task: TaskPlacement, used: Iterable[MigInstance], after: Callable[[DeviceId], Instances | None]
    ) -> Iterator[Violation]:
        if task.mig is None:
            return
        slot = task.mig
        node, gpu = self.case.ground.gpus.get(slot.gpu, (None, None))
        if node is None or gpu is None or node.name != task.node or not gpu.healthy:
            yield Violation("S1", job, f"{slot.gpu} is not a healthy GPU of {task.node}")
            return
        known = self.pools.get(node.pool)
        profile = PROFILES.get(known.model, {}).get(slot.instance.profile) if known else None
        if known is None or profile is None or slot.instance not in (after(slot.gpu) or ()):
            yield Violation("S1", job, f"GPU {slot.gpu} has no {slot.instance.profile} at {slot.instance.start}")
            return
        if slot.cost != 1000 * profile.memory_slices // SLICES[known.model]:
            yield Violation("S3", job, f"is charged {slot.cost} GPUs for a {slot.instance.profile} of {known.model}")
        for other in used:
            its = PROFILES[known.model].get(other.profile)
            size = its.memory_slices if its else 1
            if other.start < slot.instance.start + profile.memory_slices and slot.instance.start < other.start + size:
                yield Violation("S1", job, f"its instance on {slot.gpu} overlaps one that is taken")

    def _taken_whole(
        self, job: str, task: TaskPlacement, used: dict[DeviceId, set[MigInstance]]
    ) -> Iterator[Violation]:
        if self._divided.isdisjoint(task.devices) and used.keys().isdisjoint(task.devices):
            return
        for device in task.devices:
            if self.after(device) is not None:
                yield Violation("S1", job, f"GPU {device} is in MIG mode and bound as a whole")
            if used.get(device):
                yield Violation("S1", job, f"GPU {device} has instances in use and is bound as a whole")

    def _peers(self, job: Job, bind: Bind) -> Iterator[Violation]:
        """S5: nobody who wants NVLink between tasks gets instances."""
        sizes = Counter([task.group for task in bind.tasks if task.mig])
        if not sizes:
            return
        asked = {job.spec.topology.required} if len(bind.tasks) > 1 else set()
        for group in job.spec.task_groups:
            if sizes[group.name] > 1:
                asked |= {group.topology.required, *(bundle.within for bundle in bundles(job, group))}
            asked |= {
                each.within for each in job.spec.topology.together if group.name in each.groups and sizes[group.name]
            }
        if "island" in asked:
            yield Violation(
                "S5", job.name, "wants its tasks in one island and gets MIG instances, which have no NVLink"
            )

    def _now(self, gpu: Gpu) -> Instances | None:
        """What a GPU is partitioned into: what somebody has counts as there, and what it overlaps as gone."""
        used = self.used.get(gpu.id, set())
        if not used:
            return gpu.instances
        known = self.pools.get(self.case.ground.gpus[gpu.id][0].pool)
        profiles = PROFILES.get(known.model, {}) if known else {}

        def overlaps(one: MigInstance, other: MigInstance) -> bool:
            sizes = [profiles[known.profile].memory_slices for known in (one, other)]
            return one.start < other.start + sizes[1] and other.start < one.start + sizes[0]

        known_ones = [one for one in gpu.instances or () if one.profile in profiles]
        in_use = [one for one in used if one.profile in profiles]
        apart = [one for one in known_ones if not any(overlaps(one, other) for other in in_use)]
        return tuple(sorted({*apart, *used}, key=lambda one: one.start))


def _counted(layout: str) -> Counter[str]:
    names: Counter[str] = Counter()
    for part in layout.split("+ "):
        count, _, name = part.strip().rpartition("x ")
        names[name.strip()] += int(count or 1)
    return names
