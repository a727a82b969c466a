"""What the backend reports, by attempt."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from reconciler.model.facts import NodeFacts
from reconciler.protocols.backend import ENDED, AttemptKey, BackendChanges, Cursor, GpuPartitioned, TaskStatus
from solver.model.cluster import DeviceId, Node, NodeName
from solver.model.workload import JobName, JobSpec, TaskPlacement

TaskKey = tuple[str, int]
"""Group and index."""


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """What is known of one attempt. Something not known may be so all the same: absence is never acted upon."""

    tasks: tuple[TaskStatus, ...] = ()
    stopped: bool = False
    left: Mapping[TaskKey, int] = field(default_factory=dict)
    """Tasks that were told to leave and have, and up to which growth what came is known to be gone."""

    def of_tasks(self, came: Mapping[TaskKey, int]) -> AttemptReport:
        """What is known of these tasks since the growth with which each came at the earliest."""
        known = tuple(
            [
                task
                for task in self.tasks
                if (since := came.get((task.group, task.index))) is not None and task.growth >= since
            ]
        )
        if not self.left:
            # Of a gang of which nothing was told to leave there is nothing to leave out, as a rule.
            return self if len(known) == len(self.tasks) else AttemptReport(known, self.stopped)
        growth = dict(came) | {(task.group, task.index): task.growth for task in known}
        left = {key: told for key, told in self.left.items() if key in growth and told >= growth[key]}
        return AttemptReport(known, self.stopped, left)

    def after(self, told: AttemptReport) -> AttemptReport:
        """With what was told of it later."""
        tasks = {(task.group, task.index): task for task in (*self.tasks, *told.tasks)}
        return AttemptReport(tuple(tasks.values()), self.stopped or told.stopped, {**self.left, **told.left})

    def have_left(self, wanted: tuple[TaskPlacement, ...]) -> bool:
        """Nothing of these tasks runs or ever will, whether they had started or not."""
        return all((task.group, task.index) in self.left for task in wanted)

    def knows_all(self, wanted: tuple[TaskPlacement, ...]) -> bool:
        """The backend has reported every task."""
        return {(task.group, task.index) for task in wanted} <= {(task.group, task.index) for task in self.tasks}

    def is_over(self, wanted: tuple[TaskPlacement, ...]) -> bool:
        """No task runs or ever will. A lost task may run on somewhere, so only a finished stop vouches for it."""
        certain = all(
            (task.state in ENDED and task.state != "lost") or (task.group, task.index) in self.left
            for task in self.tasks
        )
        return self.stopped or (certain and self.knows_all(wanted))

    def all_run(self, wanted: tuple[TaskPlacement, ...]) -> bool:
        """Every task runs, or has run."""
        return self.knows_all(wanted) and all(task.state != "starting" for task in self.tasks)

    def all_succeeded(self, wanted: tuple[TaskPlacement, ...]) -> bool:
        """Every task ended well."""
        return self.knows_all(wanted) and all(task.state == "succeeded" for task in self.tasks)

    def launched_by(self, spec: JobSpec) -> str:
        """The group with the task that began once all others ran, and judges the job alone from then on; "" while there is none."""
        launcher = spec.launcher
        begun = launcher and any(task.group == launcher.name and task.state != "starting" for task in self.tasks)
        return launcher.name if launcher and begun else ""

    def counted(self, spec: JobSpec) -> AttemptReport:
        """The tasks that end the job as they end."""
        by = self.launched_by(spec)
        return replace(self, tasks=tuple(task for task in self.tasks if task.group == by)) if by else self

    @property
    def culprit(self) -> TaskStatus | None:
        """The first task that failed; if none did, the first that was lost."""
        broken = [task for task in self.tasks if task.state in ("failed", "lost")]
        return min(broken, key=lambda task: (task.state != "failed", task.at, task.group, task.index), default=None)


@dataclass(frozen=True, slots=True)
class BackendReports:
    """One look at the backend."""

    nodes: Mapping[NodeName, Node]
    attempts: Mapping[AttemptKey, AttemptReport]
    partitioned: Mapping[DeviceId, GpuPartitioned] = field(default_factory=dict)
    facts: Mapping[NodeName, NodeFacts] = field(default_factory=dict)
    """What nodes tell of their hardware; nothing of those that do not."""
    cursor: Cursor = Cursor(0)  # noqa: RUF009  (an int)
    """What comes behind it is not in here."""
    words: Mapping[JobName, tuple[str, ...]] = field(default_factory=dict)
    """What is to be said of jobs that nothing else here says, as sentences."""

    @classmethod
    def of(cls, changes: BackendChanges) -> BackendReports:
        """Sort everything the backend knows (`changes` from cursor 0) by attempt."""
        tasks: defaultdict[AttemptKey, list[TaskStatus]] = defaultdict(list)
        for status in changes.tasks:
            tasks[status.job, status.attempt].append(status)
        left: defaultdict[AttemptKey, dict[TaskKey, int]] = defaultdict(dict)
        for gone in changes.left:
            left[gone.job, gone.attempt][gone.group, gone.index] = gone.growth
        stopped = {(done.job, done.attempt) for done in changes.stopped}
        attempts = {
            key: AttemptReport(tuple(tasks.get(key, ())), key in stopped, left.get(key, {}))
            for key in sorted(stopped | set(tasks) | set(left))
        }
        partitioned = {done.device: done for done in changes.partitioned}
        facts = {told.node: told for told in changes.facts}
        return cls({node.name: node for node in changes.nodes}, attempts, partitioned, facts, changes.cursor)

    def after(self, changes: BackendChanges) -> BackendReports:
        """With what has changed behind its cursor. What the backend was told to forget meanwhile stays."""
        new = BackendReports.of(changes)
        attempts = {
            key: self.attempts[key].after(told) if key in self.attempts else told for key, told in new.attempts.items()
        }
        return BackendReports(
            {**self.nodes, **new.nodes} if new.nodes else self.nodes,
            dict(sorted({**self.attempts, **attempts}.items())) if attempts else self.attempts,
            {**self.partitioned, **new.partitioned},
            {**self.facts, **new.facts} if new.facts else self.facts,
            new.cursor,
        )

    def without(self, keys: Collection[AttemptKey]) -> BackendReports:
        """The same, as if nothing were reported of these attempts."""
        return replace(self, attempts={key: seen for key, seen in self.attempts.items() if key not in keys})

    def attempt(self, job: JobName, number: int) -> AttemptReport:
        """What is known of an attempt; an empty one where nothing is."""
        return self.attempts.get((job, number), AttemptReport())
