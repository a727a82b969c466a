"""What became of every job of a policy test, and what queues held when: gathered round by round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from reconciler.gitops.policytests.replay import Moment
from reconciler.gitops.policytests.world import PolicyTestWorld
from reconciler.model.idle_policy import IdlePolicy
from solver.model.cluster import GpuType, Node, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Bind, Evict, Inadmissible, Shrink, Verdict, Waits
from solver.policy.policy import Policy
from solver.policy.tree import QueueTree

_UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1_000}
Held = dict[tuple[QueueName, GpuType], int]
"""Milli-GPUs by queue and type."""


@dataclass(slots=True)
class Story:
    """How one job fared. `held`: what it held after each round in which it was there, from its first start on."""

    job: Job
    ran_already: bool
    starts: list[tuple[Instant, tuple[TaskPlacement, ...]]] = field(default_factory=list)
    asked: list[tuple[Instant, Evict | Shrink]] = field(default_factory=list)
    verdicts: list[tuple[Instant, Verdict]] = field(default_factory=list)
    held: list[tuple[Instant, MilliGpu]] = field(default_factory=list)

    @property
    def blocked(self) -> list[tuple[Instant, Waits | Inadmissible]]:
        """The verdicts that kept it from starting."""
        return [(at, verdict) for at, verdict in self.verdicts if isinstance(verdict, Waits | Inadmissible)]


@dataclass(slots=True)
class Course:
    """Everything that statements are about. `ends`: until when the test looks."""

    policy: Policy
    tree: QueueTree
    nodes: dict[NodeName, Node]
    begins: Instant
    ends: Instant
    stories: dict[JobName, Story] = field(default_factory=dict)
    held: list[tuple[Instant, Held]] = field(default_factory=list)
    idle: tuple[IdlePolicy, ...] = ()

    @classmethod
    def of(cls, world: PolicyTestWorld, policy: Policy, lasts: Duration, idle: tuple[IdlePolicy, ...] = ()) -> Course:
        """One in which nothing has happened yet."""
        nodes = {node.name: node for node in world.nodes}
        return cls(policy, QueueTree.of(policy), nodes, world.begins, world.begins.after(lasts), idle=idle)

    def follow(self, moment: Moment) -> None:
        """One more round."""
        for job in moment.snapshot.jobs:
            if job.name not in self.stories:
                self.stories[job.name] = Story(job, ran_already=job.phase == "running")
        if moment.plan is not None:
            for verdict in moment.plan.verdicts:
                self.stories[verdict.job].verdicts.append((moment.at, verdict))
            for step in moment.plan.steps:
                if isinstance(step, Bind):
                    self.stories[step.job].starts.append((moment.at, step.tasks))
                elif isinstance(step, Evict | Shrink):
                    self.stories[step.job].asked.append((moment.at, step))
        for name, job in moment.jobs.items():
            story = self.stories[name]
            if story.ran_already or story.starts:
                story.held.append((moment.at, MilliGpu(sum(task.gpus for task in job.placement))))
        self.held.append((moment.at, self._held(moment)))

    def _held(self, moment: Moment) -> Held:
        held: Held = defaultdict(int)
        for job in moment.jobs.values():
            for task in job.placement:
                held[job.spec.queue, self.nodes[task.node].gpu_type] += task.gpus
        return dict(held)

    def since_begin(self, at: Instant) -> str:
        """An instant as people read it in a test: the time since it began."""
        return duration_text(at - self.begins)

    def leaves_below(self, queue: QueueName) -> frozenset[QueueName]:
        """The queue, and every queue below it."""
        return frozenset(known for known in self.tree.by_name if queue in self.tree.path(known))

    def held_by(self, queue: QueueName | None, gpu_type: GpuType | None, held: Held) -> MilliGpu:
        """What a queue and those below it held; None: all queues, all types."""
        within = None if queue is None else self.leaves_below(queue)
        return MilliGpu(
            sum(
                milli
                for (owner, owned), milli in held.items()
                if (within is None or owner in within) and (gpu_type is None or owned == gpu_type)
            )
        )

    def spans(self, after: Duration) -> Iterator[tuple[Instant, int, Held]]:
        """Each stretch in which no job's hold changed, from `after` to the end: its first instant, its length in ms."""
        first = self.begins.after(after)
        following = [at for at, _ in self.held[1:]] + [self.ends]
        for (at, held), until in zip(self.held, following, strict=True):
            start = max(at, first)
            if until > start or (until == start == self.ends):
                yield start, until - start, held


def duration_text(milliseconds: int) -> str:
    """Like `1h30s`, as it may be written in a test; whole seconds."""
    written = ""
    for unit, size in _UNITS_MS.items():
        count, milliseconds = divmod(milliseconds, size)
        written += f"{count}{unit}" if count else ""
    return written or "0s"
