"""How far apart the tasks of a gang lie, told so that a person can see why they talk slowly."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from solver.model.cluster import LEVELS, Level, Node, is_wider
from solver.model.document import Document
from solver.model.workload import JobSpec
from solver.plan.reason import count


class PartApart(Document, frozen=True):
    """Tasks of `groups` that are not in one domain of a level that they prefer; of bundles of `tasks` tasks so many `bundles`.

    Of groups that are in units together so many `units`.
    """

    groups: tuple[str, ...]
    level: Level
    tasks: int = 0
    bundles: int = 0
    units: int = 0

    def __str__(self) -> str:
        of_groups = f"group{'s' if len(self.groups) > 1 else ''} {' and '.join(self.groups)}"
        if self.units:
            what = f"{count(self.units, 'unit')} of {of_groups}"
            return f"{what} {'prefers' if self.units == 1 else 'prefer'} one {self.level}"
        if not self.bundles:
            return f"{of_groups} {'prefer' if len(self.groups) > 1 else 'prefers'} one {self.level}"
        what = f"{count(self.bundles, 'bundle')} of {self.tasks} tasks of {of_groups}"
        return f"{what} {'prefers' if self.bundles == 1 else 'prefer'} one {self.level}"


class Extent(Document, frozen=True):
    """The tasks lie in `domains` domains of `level`: the closest one that the job prefers, else the next closer than `within`.

    They are together in `domain`, the closest that has them all, of level `within` (None: not even in one pool).
    `missed`: the levels that the job prefers and at which its tasks are not together, the closest first. `parts`: the same of
    its groups and bundles.
    """

    level: Level
    domains: int
    within: Level | None = None
    domain: str = ""
    missed: tuple[Level, ...] = ()
    parts: tuple[PartApart, ...] = ()

    def __str__(self) -> str:
        if self.domains == 1:
            return f"in one {self.within}, {self.domain}"
        whole = f" of {self.within} {self.domain}" if self.within else ""
        where = f"over {self.domains} {self.level}s{whole}"
        wishes = [f"it prefers one {' and one '.join(self.missed)}"] if self.missed else []
        return "; ".join((where, *wishes, *map(str, self.parts)))


def extent_of(spec: JobSpec, hosts: Sequence[Node], tasks: Sequence[tuple[str, int]] = ()) -> Extent | None:
    """That of tasks on these hosts, one for each task; None of a single task, which is near itself.

    `tasks`: the group and the index of each, by which its groups and bundles are told apart.
    """
    if len(hosts) < 2:
        return None
    within = next((level for level in LEVELS if _domains(hosts, level) == 1), None)
    wishes = spec.effective_topology.wishes
    level = wishes[0] if wishes else _closer(within)
    missed = tuple(wish for wish in wishes if is_wider(within, wish))
    domain = hosts[0].domain(within) if within else ""
    on = dict(zip(tasks, hosts, strict=True)) if tasks else {}
    parts = tuple(_parts_apart(spec, on)) if spec.has_inner_wishes else ()
    return Extent(level, _domains(hosts, level), within, domain, missed, parts)


def _parts_apart(spec: JobSpec, on: Mapping[tuple[str, int], Node]) -> Iterator[PartApart]:
    for known in spec.topology.together:
        units = defaultdict[int, list[Node]](list)
        for (name, index), host in on.items():
            if name in known.groups:
                units[spec.unit_number(known, name, index)].append(host)
        for level in known.wishes:
            torn = sum(_domains(hosts, level) > 1 for hosts in units.values())
            if torn:
                yield PartApart(known.groups, level, units=torn if known.units > 1 else 0)
    for group in spec.task_groups:
        own = [(index, host) for (name, index), host in on.items() if name == group.name]
        for bundle in spec.bundles_of(group):
            for level in bundle.wishes:
                places = {(index // bundle.tasks, host.domain(level)) for index, host in own}
                torn = sum(count > 1 for count in Counter(number for number, _ in places).values())
                if torn:
                    whole = bundle.tasks >= group.replicas
                    yield PartApart((group.name,), level, 0 if whole else bundle.tasks, 0 if whole else torn)


def _domains(hosts: Sequence[Node], level: Level) -> int:
    return len({host.domain(level) for host in hosts})


def _closer(level: Level | None) -> Level:
    return LEVELS[max(0, (*LEVELS, None).index(level) - 1)]
