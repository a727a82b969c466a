"""Judges jobs without GPUs that have others leave for their fair share of CPU and memory: S12, by the checker's own arithmetic.

Part of the checker. What jobs with GPUs leave of nodes that are there is divided: guarantees first, as far as there is demand,
the rest by weight among siblings that want more, level by level. It is divided to the last byte here, and a core or so more or less
for each queue accuses nothing: what decides gives out whole cores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from solver.checker.case import JudgedPlan
from solver.model.shape import Shape
from solver.model.workload import Job, JobName, QueueName, TaskPlacement
from solver.plan.plan import Inadmissible, Nominate
from solver.plan.violation import Violation

Line = tuple[QueueName, int]
"""A queue; 0: CPU in milli-cores, 1: memory in bytes."""

UNIT = 1000
"""What is given out is a multiple of this: a core, or 1,000 bytes."""


class HostLoss(NamedTuple):
    """What leaves for a job, of another queue, and can't be divided."""

    name: JobName
    queue: QueueName
    beside: tuple[int, int]


@dataclass(frozen=True)
class HostFairness:
    """The fair shares of one judgement. `guaranteed`: by queue what it is of both."""

    case: JudgedPlan
    guaranteed: Mapping[str, tuple[int, int]]

    @property
    def divides(self) -> bool:
        """Whether any queue says anything of either."""
        return any(queue.host_quota for queue in self.case.policy.queues)

    def may_take(self, preemptor: Job) -> bool:
        """Whether its queue takes anything back for its fair share."""
        said = [queue.reclaim for queue in self.case.lookup.path(preemptor.spec.queue)]
        mode = next((known for known in said if known), self.case.policy.scheduling.reclaim)
        return self.divides and mode != "guaranteed"

    def findings(
        self, losses: Mapping[JobName, Sequence[HostLoss]], left: Mapping[JobName, Sequence[HostLoss]]
    ) -> Iterator[Violation]:
        """Every promise in the order of the plan. `losses`: what leaves of other queues for jobs that are not inside guarantees;
        `left`: all that jobs without GPUs leave, by for whom.
        """
        used = Counter(self._used)
        if any(entry.lendable is not None for queue in self.case.policy.queues for entry in queue.host_quota):
            return  # what is fair then depends on what is kept back, which is not told here
        for step in self.case.steps(Nominate):
            job = self.case.jobs.get(step.job)
            if job is None:
                continue
            gain = (0, 0) if self._has_gpus(step.tasks) else beside_of(job, step.tasks)
            if step.job in losses:
                yield from self._judge(job, gain, losses[step.job], used)
            for queue, both, sign in (
                *((loss.queue, loss.beside, -1) for loss in left.get(step.job, ())),
                (job.spec.queue, gain, 1),
            ):
                for line, amount in self._on_path(queue, both):
                    used[line] += sign * amount

    def _judge(
        self, job: Job, gain: tuple[int, int], losses: Sequence[HostLoss], used: Mapping[Line, int]
    ) -> Iterator[Violation]:
        mine, names = job.spec.queue, ", ".join(sorted({loss.name for loss in losses}))
        for loss in losses:
            said = [queue.reclaimed_for for queue in self.case.lookup.path(loss.queue)]
            if next((mode for mode in said if mode), "fair-share") == "guaranteed":
                yield Violation(
                    "S12", job.name, f"takes from {loss.name}, and reclaimedFor of {loss.queue} is guaranteed"
                )
        for resource in (0, 1):
            after = used.get((mine, resource), 0) + gain[resource]
            if gain[resource] and after > self.fair[mine, resource] + self._slack(mine) + UNIT:
                told = (
                    f"{_word(resource)} of {mine} would be {after}, its fair share is {int(self.fair[mine, resource])}"
                )
                yield Violation("S12", job.name, f"takes from {names}, and {told}")
        yield from self._from_above_alone(job, losses, used)
        yield from self._fairer(job, gain, losses, used)

    def _from_above_alone(self, job: Job, losses: Sequence[HostLoss], used: Mapping[Line, int]) -> Iterator[Violation]:
        path, lost, largest = self.case.lookup.on_path(job.spec.queue), Counter[Line](), Counter[Line]()
        for loss in losses:
            for line, amount in self._on_path(loss.queue, loss.beside):
                if line[0] not in path and amount:
                    lost[line] += amount
                    largest[line] = max(largest[line], amount)
        for line, amount in lost.items():
            # What starts in the plan may have been decided before this, or after.
            above = used.get(line, 0) + self._starting[line] - self.fair[line] + self._slack(line[0])
            if self._is_short(line) and (above <= 0 or amount - largest[line] > above):
                told = f"{amount} of {_word(line[1])} of {line[0]} leave for it, whose fair share is {int(self.fair[line])}"
                yield Violation("S12", job.name, told)

    def _fairer(
        self, job: Job, gain: tuple[int, int], losses: Sequence[HostLoss], used: Mapping[Line, int]
    ) -> Iterator[Violation]:
        """At each level some of what is short changes hands, and the least served have more by it."""
        changes = defaultdict[tuple[QueueName | None, int], Counter[QueueName]](Counter)
        levels = set[QueueName | None]()
        for loss in losses:
            theirs, mine, above = self._parting(loss.queue, job.spec.queue)
            levels.add(above)
            for resource in (0, 1):
                if loss.beside[resource] and gain[resource] and self._is_short((theirs, resource)):
                    changes[above, resource][theirs] -= loss.beside[resource]
                    changes[above, resource][mine] = gain[resource]
        for above in levels - {level for level, _ in changes}:
            yield Violation("S12", job.name, f"takes below {above or 'the cluster'} where all have what they want")
        for (above, resource), change in changes.items():
            readings = (Counter[Line](), self._starting)
            if not any(self._improves(above, resource, change, used, more) for more in readings):
                yield Violation("S12", job.name, "has others leave, and the least served have no more by it")

    def _improves(
        self,
        above: QueueName | None,
        resource: int,
        change: Mapping[QueueName, int],
        used: Mapping[Line, int],
        more: Mapping[Line, int],
    ) -> bool:
        beside = self.case.lookup.siblings.get(above, ())
        held = {name: used.get((name, resource), 0) + more.get((name, resource), 0) for name in beside}
        fair = {name: self.fair[name, resource] for name in beside}

        def parts(of: Mapping[QueueName, int]) -> list[Fraction]:
            return sorted(min(Fraction(1), of[name] / fair[name]) if fair[name] > 0 else Fraction(1) for name in beside)

        changed = parts({name: held[name] + change.get(name, 0) for name in beside})
        before = parts(held)
        least = min((share for share in fair.values() if share > 0), default=Fraction(UNIT))
        doubt = self._slack(next(iter(change))) / least
        clear = next(
            (after > was for after, was in zip(changed, before, strict=True) if abs(after - was) > doubt), None
        )
        return changed != before if clear is None else clear

    def _parting(self, one: QueueName, other: QueueName) -> tuple[QueueName, QueueName, QueueName | None]:
        """The last queues from the root down that are on the path of one alone, and the first above both; None: the cluster."""
        first, second = ([queue.name for queue in self.case.lookup.path(name)][::-1] for name in (one, other))
        depth = next(n for n, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        return first[depth], second[depth], first[depth - 1] if depth else None

    # What is fair.

    def _slack(self, queue: QueueName) -> int:
        """By how much its fair share may be another: at each level each queue may have got what could not be divided."""
        return UNIT * len(self.case.lookup.path(queue))

    @cached_property
    def fair(self) -> Mapping[Line, Fraction]:
        """By line, the fair share."""
        found: dict[Line, Fraction] = {}
        for resource in (0, 1):
            given = dict[QueueName | None, Fraction]([(None, Fraction(max(0, self._left[resource])))])
            for above, names in self.case.lookup.siblings.items():
                shares = self._shared_out(given.get(above, Fraction(0)), names, resource)
                found |= {(name, resource): share for name, share in shares.items()}
                given.update(shares.items())
        return found

    def _shared_out(self, amount: Fraction, names: Sequence[QueueName], resource: int) -> dict[QueueName, Fraction]:
        """Guarantees as far as there is demand, then up to a level that is the same for all by weight."""
        demand = {name: self._demand[name, resource] for name in names}
        sure = {name: min(demand[name], self.guaranteed.get(name, (0, 0))[resource]) for name in names}
        weight = {name: self.case.lookup.queues[name].weight for name in names}
        left = amount - sum(sure.values())
        shares = {name: Fraction(sure[name]) for name in names}
        hungry = sorted(names, key=lambda name: Fraction(demand[name] - sure[name], weight[name]))
        for place, name in enumerate(hungry):
            part = left * weight[name] / sum(weight[other] for other in hungry[place:])
            more = max(Fraction(0), min(Fraction(demand[name] - sure[name]), part))
            shares[name] += more
            left -= more
        return shares

    def _is_short(self, line: Line) -> bool:
        """Whether its siblings, and it, want more than there is for them."""
        path = self.case.lookup.path(line[0])
        names = self.case.lookup.siblings.get(path[1].name if len(path) > 1 else None, ())
        return any(self.fair[name, line[1]] < self._demand[name, line[1]] for name in names)

    @cached_property
    def _demand(self) -> Mapping[Line, int]:
        found = Counter[Line]()
        lookup = self.case.lookup
        for queue in reversed(lookup.from_the_top):
            for resource, word in enumerate(("cpu", "memory")):
                line = (queue.name, resource)
                if queue.name not in lookup.parents:
                    found[line] = self._used[line] + self._wanted[line]
                entry = queue.host_quota_for("cpu" if word == "cpu" else "memory")
                if entry is not None and entry.max is not None:
                    found[line] = min(found[line], int(entry.max))
                path = lookup.path(queue.name)
                if len(path) > 1:
                    found[path[1].name, resource] += found[line]
        return found

    @cached_property
    def _wanted(self) -> Counter[Line]:
        """What jobs without GPUs ask for that wait and could start one day."""
        case, found = self.case, Counter[Line]()
        closed = {queue.name for queue in case.policy.queues if queue.stop_policy != "None"}
        out = {verdict.job for verdict in case.verdicts(Inadmissible)} | (case.promised.keys() - case.withdrawn)
        for job in case.pending:
            waits = job.name not in out and closed.isdisjoint(case.lookup.on_path(job.spec.queue))
            if waits and not any(group.shape.uses_gpus for group in job.spec.task_groups):
                shapes = [(group.replicas, group.shape) for group in job.spec.task_groups]
                both = sum(n * int(s.cpu) for n, s in shapes), sum(n * int(s.memory) for n, s in shapes)
                found.update(dict(self._on_path(job.spec.queue, both)))
        return found

    @cached_property
    def _held(self) -> Sequence[tuple[Job, tuple[TaskPlacement, ...]]]:
        """What each job is charged: what it holds; where it waits or was asked to leave, what it was promised."""
        leaves = {(intent.job, intent.attempt) for intent in self.case.intents if intent.evicts}
        held = list[tuple[Job, tuple[TaskPlacement, ...]]]()
        for job in self.case.snapshot.jobs:
            stays = job.phase != "pending" and (job.name, job.attempt) not in leaves
            promised = () if job.name in self.case.withdrawn else self.case.promised.get(job.name, ())
            held.append((job, job.placement if stays else tuple(promised)))
        return held

    @cached_property
    def _used(self) -> Counter[Line]:
        """What jobs without GPUs hold when the round begins."""
        found = Counter[Line]()
        for job, tasks in self._held:
            if not self._has_gpus(tasks):
                found.update(dict(self._on_path(job.spec.queue, beside_of(job, tasks))))
        return found

    @cached_property
    def _left(self) -> tuple[int, int]:
        """What jobs with GPUs leave of all nodes that are there."""
        nodes = [node for node in self.case.ground.nodes if node.ready]
        taken = [beside_of(job, tasks) for job, tasks in self._held if self._has_gpus(tasks)]
        cpu = sum(int(node.cpu) for node in nodes) - sum(both[0] for both in taken)
        return cpu, sum(int(node.memory) for node in nodes) - sum(both[1] for both in taken)

    @cached_property
    def _starting(self) -> Counter[Line]:
        """What jobs without GPUs start in the plan."""
        found = Counter[Line]()
        for step in self.case.placing:
            if step.job in self.case.started and not self._has_gpus(step.tasks):
                job = self.case.jobs[step.job]
                found.update(dict(self._on_path(job.spec.queue, beside_of(job, step.tasks))))
        return found

    def _on_path(self, queue: QueueName, both: tuple[int, int]) -> list[tuple[Line, int]]:
        above = self.case.lookup.path(queue)
        return [((known.name, resource), both[resource]) for known in above for resource in (0, 1)]

    def _has_gpus(self, tasks: Iterable[TaskPlacement]) -> bool:
        return any(self.case.ground.charge(tasks).values())


def loss_of(part: Job) -> HostLoss:
    """What a job, or a part of one, gives up."""
    return HostLoss(part.name, part.spec.queue, beside_of(part, part.placement))


def beside_of(job: Job, tasks: Iterable[TaskPlacement]) -> tuple[int, int]:
    """CPU and memory of some of its tasks."""
    shapes = {group.name: group.shape for group in job.spec.task_groups}
    known = [shapes.get(task.group, Shape()) for task in tasks]
    return sum(int(shape.cpu) for shape in known), sum(int(shape.memory) for shape in known)


def _word(resource: int) -> str:
    return ("milli-cores", "bytes")[resource]
