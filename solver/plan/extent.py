"""How far apart the tasks of a gang lie, told so that a person can see why they talk slowly."""

from __future__ import annotations

from collections.abc import Sequence

from solver.model.cluster import LEVELS, Level, Node, is_wider
from solver.model.document import Document
from solver.model.workload import JobSpec


class Extent(Document, frozen=True):
    """The tasks lie in `domains` domains of `level`: the closest one that the job prefers, else the next closer than `within`.

    They are together in `domain`, the closest that has them all, of level `within` (None: not even in one pool).
    `missed`: the levels that the job prefers and at which its tasks are not together, the closest first.
    """

    level: Level
    domains: int
    within: Level | None = None
    domain: str = ""
    missed: tuple[Level, ...] = ()

    def __str__(self) -> str:
        if self.domains == 1:
            return f"in one {self.within}, {self.domain}"
        whole = f" of {self.within} {self.domain}" if self.within else ""
        where = f"over {self.domains} {self.level}s{whole}"
        return f"{where}; it prefers one {' and one '.join(self.missed)}" if self.missed else where


def extent_of(spec: JobSpec, hosts: Sequence[Node]) -> Extent | None:
    """That of tasks on these hosts, one for each task; None of a single task, which is near itself."""
    if len(hosts) < 2:
        return None
    within = next((level for level in LEVELS if _domains(hosts, level) == 1), None)
    wishes = spec.effective_topology.wishes
    level = wishes[0] if wishes else _closer(within)
    missed = tuple(wish for wish in wishes if is_wider(within, wish))
    domain = hosts[0].domain(within) if within else ""
    return Extent(level, _domains(hosts, level), within, domain, missed)


def _domains(hosts: Sequence[Node], level: Level) -> int:
    return len({host.domain(level) for host in hosts})


def _closer(level: Level | None) -> Level:
    return LEVELS[max(0, (*LEVELS, None).index(level) - 1)]
