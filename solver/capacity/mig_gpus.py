"""One GPU in MIG mode: what it holds, what it could hold besides, and what it is partitioned into in the end.

A GPU is changed when it holds an instance that was not there before. What it may then be partitioned into is a question of
which geometry allowed by its pool has everything that it holds; which of them it gets is settled once a round has decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from solver.model.cluster import DeviceId
from solver.model.mig import Geometry, PlacedInstance, is_valid, mig_model
from solver.model.mig_layout import profile_on, realisations
from solver.model.mig_table import MigProfile


class MigRule(NamedTuple):
    """How the GPUs of a pool may be partitioned; `layouts` only where `mode` is bounded.

    `drains`: work may have to leave a GPU so that it can be partitioned anew for a guarantee.
    """

    pool: str
    model: str
    mode: Literal["fixed", "bounded", "free"]
    layouts: tuple[str, ...] = ()
    drains: bool = False

    @property
    def changes(self) -> bool:
        """A round may partition these GPUs anew."""
        return self.mode != "fixed"

    def kept(self) -> MigRule:
        """The same where nothing may be partitioned anew."""
        return self._replace(mode="fixed", layouts=(), drains=False)

    def profile(self, name: str) -> MigProfile | None:
        """The profile of that name; None: GPUs of this pool have none."""
        return profile_on(self.model, name)


class MigGpu(NamedTuple):
    """A GPU in MIG mode, or about to be. `before`: its instances when the round began, None: it was whole. `held`: those in use."""

    device: DeviceId
    before: Geometry | None
    held: Geometry = ()

    @property
    def is_changed(self) -> bool:
        """It has to be partitioned anew to have what it holds."""
        return any(placed not in (self.before or ()) for placed in self.held)

    def with_held(self, *more: PlacedInstance) -> MigGpu:
        """The GPU with more of it in use. The task that leaves an instance and the one that it is promised to may both have it."""
        return self._replace(held=tuple(sorted({*self.held, *more}, key=_by_start)))

    def confirmed(self, mine: Geometry) -> MigGpu:
        """The GPU with instances that tasks have already: they count as being there, and what they overlap as gone."""
        return self._replace(before=_with(self.before or (), mine)).with_held(*mine)

    def without(self, placed: PlacedInstance) -> MigGpu:
        """The GPU with an instance that no task uses any more."""
        return self._replace(held=tuple(other for other in self.held if other != placed))


def with_whole(rule: MigRule, gpus: Iterable[MigGpu], whole: Iterable[DeviceId]) -> Iterator[MigGpu]:
    """A node's GPUs in MIG mode first; then those that are whole, where they may be partitioned."""
    yield from gpus
    if rule.changes:
        yield from (MigGpu(device, None) for device in whole)


def there_are(gpu: MigGpu, profile: MigProfile) -> tuple[PlacedInstance, ...]:
    """Instances of a profile that are there and idle."""
    return tuple(placed for placed in gpu.before or () if placed.profile == profile and placed not in gpu.held)


def tasks_as_it_is(rule: MigRule, gpu: MigGpu, profile: MigProfile) -> int:
    """Tasks that find an instance without a (further) change of the GPU."""
    return most_besides(rule, gpu.held, profile) if gpu.is_changed else len(there_are(gpu, profile))


def tasks_after_change(rule: MigRule, gpu: MigGpu, profile: MigProfile) -> int:
    """Tasks that find an instance if the GPU may be partitioned anew."""
    as_it_is = tasks_as_it_is(rule, gpu, profile)
    return max(as_it_is, most_besides(rule, gpu.held, profile)) if rule.changes else as_it_is


@lru_cache(maxsize=100_000)
def tasks_on(rule: MigRule, before: Geometry | None, held: Geometry, profile: MigProfile) -> tuple[int, int]:
    """Tasks that find an instance on a GPU as it is, and if it may be partitioned anew."""
    gpu = MigGpu(DeviceId(""), before, held)
    return tasks_as_it_is(rule, gpu, profile), tasks_after_change(rule, gpu, profile)


def chosen(rule: MigRule, gpu: MigGpu, profile: MigProfile, tasks: int) -> MigGpu:
    """The GPU with so many more instances in use: those that are there if they do, else placed so that most stays possible."""
    present = there_are(gpu, profile)
    if not gpu.is_changed and tasks <= len(present):
        return gpu.with_held(*present[:tasks])
    for left in range(tasks - 1, -1, -1):
        able = [
            after
            for start in profile.starts
            if (after := _if_allowed(rule, gpu, PlacedInstance(start, profile)))
            and (not left or most_besides(rule, after.held, profile) >= left)
        ]
        gpu = min(able, key=lambda after: (_destroyed(rule, after), -_possible(rule, after.held)))
    return gpu


def settled(rule: MigRule, gpu: MigGpu) -> Geometry:
    """What the GPU is partitioned into: as it was, else an allowed geometry with all that is held and the fewest changes."""
    before = gpu.before or ()
    if not gpu.is_changed:
        return before
    if rule.mode == "free":
        kept = gpu.held
        for placed in before:
            if placed not in kept and is_valid(mig_model(rule.model), (*kept, placed)):
                kept = (*kept, placed)
        return tuple(sorted(kept, key=_by_start))
    able = [target for target in _targets(rule) if set(gpu.held) <= set(target)]
    return min(able, key=lambda target: len(set(before) - set(target)))


@lru_cache(maxsize=100_000)
def most_besides(rule: MigRule, held: Geometry, profile: MigProfile) -> int:
    """How many instances of a profile some allowed geometry has beside the held ones."""
    if rule.mode == "bounded":
        extra = ([placed.profile for placed in target] for target in _targets(rule) if set(held) <= set(target))
        mine = sum(placed.profile == profile for placed in held)
        return max((profiles.count(profile) - mine for profiles in extra), default=0)
    # The starts of one profile never overlap each other, so taking each that is free finds the most.
    model, placed = mig_model(rule.model), held
    for start in profile.starts:
        if is_valid(model, (*placed, PlacedInstance(start, profile))):
            placed = (*placed, PlacedInstance(start, profile))
    return len(placed) - len(held)


@lru_cache(maxsize=100_000)
def is_allowed(rule: MigRule, held: Geometry) -> bool:
    """Some geometry that the pool allows has all these instances."""
    if rule.mode == "bounded":
        return any(set(held) <= set(target) for target in _targets(rule))
    return rule.changes and is_valid(mig_model(rule.model), held)


@lru_cache(maxsize=100_000)
def _possible(rule: MigRule, held: Geometry) -> int:
    """How many different instances, by profile and start, could still be added: what placing one should leave large."""
    return sum(
        is_allowed(rule, tuple(sorted((*held, PlacedInstance(start, profile)), key=_by_start)))
        for profile in mig_model(rule.model).profiles
        for start in profile.starts
        if PlacedInstance(start, profile) not in held
    )


@lru_cache(maxsize=256)
def _targets(rule: MigRule) -> tuple[Geometry, ...]:
    return tuple(target for layout in rule.layouts for target in realisations(rule.model, layout))


def _if_allowed(rule: MigRule, gpu: MigGpu, more: PlacedInstance) -> MigGpu | None:
    after = gpu.with_held(more) if more not in gpu.held else None
    return after if after and is_allowed(rule, after.held) else None


def _destroyed(rule: MigRule, gpu: MigGpu) -> int:
    return len(set(gpu.before or ()) - set(settled(rule, gpu)))


@lru_cache(maxsize=1024)
def _with(before: Geometry, mine: Geometry) -> Geometry:
    for placed in mine:
        apart = (other for other in before if other.end <= placed.start or placed.end <= other.start)
        before = tuple(sorted((*apart, placed), key=_by_start))
    return before


def _by_start(placed: PlacedInstance) -> tuple[int, int]:
    return placed.start, placed.profile.profile_id


def spread(rule: MigRule, profile: MigProfile, gpus: Sequence[MigGpu], tasks: int) -> Iterator[tuple[MigGpu, int]]:
    """How many tasks each GPU takes: as they are if that does, else changing those that gain most, the last one fitting best."""
    gpus = sorted(gpus, key=lambda gpu: (not gpu.held, gpu.before is None))
    known = [tasks_on(rule, gpu.before, gpu.held, profile) for gpu in gpus]
    counts = [as_it_is for as_it_is, _ in known]
    gains = {number: then - now for number, (now, then) in enumerate(known) if then > now}
    missing = tasks - sum(counts)
    while missing > 0:
        enough = [number for number, gain in gains.items() if gain >= missing]
        number = min(enough, key=lambda n: (gains[n], n)) if enough else max(gains, key=lambda n: (gains[n], -n))
        missing -= gains[number]
        counts[number] += gains.pop(number)
    for number in sorted(range(len(gpus)), key=lambda n: known[n][0] != counts[n]):
        gpu, count = gpus[number], counts[number]
        if tasks and count:
            yield gpu, min(tasks, count)
            tasks -= min(tasks, count)
