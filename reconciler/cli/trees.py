"""A pipeline as a tree: each job below what it waits for, with its state and its conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from reconciler.api.group_payloads import GroupView, MemberView
from solver.model.workload import Dependency


def tree_of(view: GroupView) -> Iterator[str]:
    """Its lines. A job that waits for several stands below the last of them, and names the others."""
    nodes = _nodes(view)
    parents = {name: _parent(nodes, jobs[0].depends_on) for name, jobs in nodes.items()}

    def lines(parent: str, indent: str) -> Iterator[str]:
        children = [name for name in nodes if parents[name] == parent]
        for child in children:
            last = child == children[-1]
            branch = ("└─ " if last else "├─ ") if parent else ""
            yield f"{indent}{branch}{_line(child, nodes[child])}"
            deeper = ("   " if last else "│  ") if parent else ""
            yield from lines(child, indent + deeper)

    return lines("", "")


def _nodes(view: GroupView) -> dict[str, list[MemberView]]:
    """The jobs of the pipeline, an array as one."""
    nodes: dict[str, list[MemberView]] = {}
    for job in view.jobs:
        nodes.setdefault(job.array or job.name, []).append(job)
    return nodes


def _parent(nodes: dict[str, list[MemberView]], depends_on: tuple[Dependency, ...]) -> str:
    """The last of the pipeline's own jobs that it waits for; "": none."""
    return next((each.job for each in reversed(depends_on) if each.job in nodes), "")


def _line(name: str, jobs: list[MemberView]) -> str:
    states = Counter(job.state for job in jobs)
    state = jobs[0].state if len(jobs) == 1 else ", ".join(f"{number} {each}" for each, number in states.items())
    waits = ", ".join(map(str, jobs[0].depends_on))
    code = f" with exit code {jobs[0].code}" if len(jobs) == 1 and jobs[0].code and jobs[0].state == "failed" else ""
    return f"{name}  {state}{code}" + (f"  ({waits})" if waits else "")
