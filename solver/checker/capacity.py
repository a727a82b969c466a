"""Judges S1 and S11: every bound device exists, is healthy, open, and has one owner; no node is filled beyond what it has.

Part of the checker. What joins or leaves a running gang is a job of its own here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from solver.checker.case import JudgedPlan
from solver.checker.sharing import Owners
from solver.model.amounts import unsaid
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.shape import Shape
from solver.model.workload import Job, JobName
from solver.plan.plan import Bind
from solver.plan.violation import Violation


def room_violations(case: JudgedPlan) -> Iterable[Violation]:
    """Every device that is not to be had, and every node on which too much is bound."""
    yield from _devices(case)
    yield from _hosts(case)


def _devices(case: JudgedPlan) -> Iterator[Violation]:
    """S1: every bound device exists, is healthy, open, and has one owner; nothing in flight is contradicted (S11)."""
    staying, leaving = _owners(case)
    usable: dict[NodeName, frozenset[DeviceId]] = {}
    for bind in case.placing:
        # What somebody still holds can be promised, but not given.
        owners = (staying, leaving) if isinstance(bind, Bind) else (staying,)
        for task in bind.tasks:
            node = case.ground.by_name[task.node]
            if node.name not in usable:
                usable[node.name] = _usable(node)
            if not node.ready or node.cordoned:
                yield Violation("S1", bind.job, f"node {task.node} takes no new work")
            if usable[node.name].issuperset(task.devices) and all(known.has_free(task) for known in owners):
                staying.add(task, bind.job)
                continue
            for device in task.devices:
                # Whether there is such an instance is for mig.
                if task.mig is None and device not in usable[node.name]:
                    yield Violation("S1", bind.job, f"device {device} is not a healthy device of {task.node}")
                for known in owners:
                    other = known.other(device, task)
                    if other:
                        yield Violation("S1", bind.job, f"device {device} is held by {other}")
            staying.add(task, bind.job)


def _usable(node: Node) -> frozenset[DeviceId]:
    if not node.ready or node.cordoned:
        return frozenset()
    return frozenset(gpu.id for gpu in node.gpus if gpu.healthy)


def _owners(case: JudgedPlan) -> tuple[Owners, Owners]:
    """Of what the plan places: who has it and stays, and who has it and has been asked to leave."""
    wanted = {device for step in case.placing for task in step.tasks for device in task.devices}
    staying, leaving = Owners(), Owners()
    asked, settled = case.stopping | case.evicted, case.bound | case.withdrawn
    for job in case.snapshot.jobs:
        for task in job.placement:
            if not wanted.isdisjoint(task.devices):
                (leaving if job.name in asked else staying).add(task, job.name)
    for intent in case.intents:
        promised = intent.kind == "nominate"
        for task in () if promised and intent.job in settled else intent.tasks:
            if not wanted.isdisjoint(task.devices):
                # What a job that moves was promised stays its own when it has left.
                (leaving if not promised and intent.job in asked else staying).add(task, intent.id)
    return staying, leaving


def _hosts(case: JudgedPlan) -> Iterator[Violation]:
    """S1 beside GPUs: a node is not filled beyond what it has of anything, or not further if it already is."""
    asked: defaultdict[NodeName, defaultdict[str, set[JobName]]] = defaultdict(lambda: defaultdict(set))
    used: defaultdict[NodeName, Counter[str]] = defaultdict(Counter)
    bound = [(case.jobs[bind.job], bind.tasks) for bind in case.steps(Bind)]
    for job, tasks in bound:
        shapes = _shapes(job)
        for task in tasks:
            for name, amount in shapes.get(task.group, _NOTHING).beside.items():
                if amount:
                    asked[task.node][name].add(job.name)
    held = [(job, job.placement) for job in case.snapshot.jobs] if asked else []
    for job, tasks in (*bound, *held):
        for task in tasks:
            if task.node in asked:
                used[task.node].update(_shapes(job).get(task.group, _NOTHING).beside)
    for node, jobs in sorted(asked.items()):
        has = case.ground.by_name[node].beside
        lacking = [name for name in sorted(jobs) if used[node][name] > has.get(name, unsaid(name))]
        if lacking:
            whose = ", ".join(sorted(set().union(*(jobs[name] for name in lacking))))
            yield Violation("S1", whose, f"node {node} has not enough {' or '.join(lacking)} for them")


def _shapes(job: Job) -> dict[str, Shape]:
    return {group.name: group.shape for group in job.spec.task_groups}


_NOTHING = Shape()
