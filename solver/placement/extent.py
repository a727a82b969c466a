"""How far apart a gang lies on its nodes, for verdicts and for whoever asks where a job runs."""

from __future__ import annotations

from collections.abc import Sequence

from solver.model.cluster import LEVELS, Level, Node, is_wider
from solver.model.workload import JobSpec
from solver.plan.extent import Extent


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
