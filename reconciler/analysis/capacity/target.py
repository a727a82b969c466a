"""A target for waiting, as it is written: `p90 wait of standard < 1h`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from reconciler.analysis.backtest.backtest import with_queues_of
from reconciler.analysis.backtest.figures import Figure, figure
from reconciler.analysis.backtest.summary import ReplayOutcome
from reconciler.model.problem import did_you_mean
from solver.model.document import Document
from solver.model.quantities import Duration
from solver.policy.policy import SLO_CLASSES, Policy
from solver.policy.tree import QueueTree
from solver.simulation.trace import TraceJob

Population = Literal["all", "class", "slo", "queue", "type"]
"""Which jobs are meant: all, those of a priority class, of an SLO class, of a queue, or that accept a GPU type."""

EXAMPLE: Final = "Write it as 'p90 wait of standard < 1h'."
_WORD: Final = re.compile(r"<=?|[^\s<]+")
_PERCENTILE: Final = re.compile(r"p([1-9]\d?)")
_NAMED: Final[Mapping[str, int]] = {"median": 50, "max": 100}
_POPULATIONS: Final = ("class", "slo", "queue", "type")


class PhraseError(ValueError):
    """An option's text can't be read: `column` counts from 1. `fix` is what to do about it."""

    def __init__(self, column: int, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.column, self.fix = column, fix


class JudgedWait(NamedTuple):
    """A wait, and whether the target is met for certain: also if the jobs that had not started by the end never start."""

    wait: Figure
    is_met: bool


class WaitTarget(Document, frozen=True):
    """A percentile of the time from submission to the first start, over some jobs, is to be below a limit."""

    percent: int
    population: Population
    name: str
    below: Duration

    @property
    def statistic(self) -> str:
        """Which percentile."""
        return "max" if self.percent == 100 else f"p{self.percent}"

    def __str__(self) -> str:
        of = "" if self.population == "all" else f" of {self.population} {self.name}"
        return f"{self.statistic} wait{of} < {self.below}"

    def covers(self, job: TraceJob, policy: Policy) -> bool:
        """Whether a job is one of those meant."""
        spec = job.job.spec
        match self.population:
            case "all":
                return True
            case "class":
                return policy.priority_class_name(job.job) == self.name
            case "slo":
                known = policy.priority_class(job.job)
                return known is not None and known.slo_class == self.name
            case "queue":
                return self.name in QueueTree.of(policy).path(spec.queue)
            case "type":
                return any(self.name in group.shape.gpu_types for group in spec.task_groups)

    def judge(self, outcome: ReplayOutcome) -> JudgedWait:
        """The percentile in a replay, in seconds. There is at least one such job."""
        runs, policy = outcome.replay.runs, outcome.replay.policy
        known, bounds = list[float](), list[float]()
        for one in outcome.jobs:
            if self.covers(one, policy):
                run = runs.get(one.job.name)
                if run is None or run.wait_ms is None:
                    bounds.append((outcome.end - one.job.submitted_at) / 1000)
                else:
                    known.append(run.wait_ms / 1000)
        # However long the others still wait, so many have not waited for too long.
        met = sum(wait < self.below.seconds for wait in known)
        is_met = 100 * met >= self.percent * (len(known) + len(bounds))
        return JudgedWait(figure(known, bounds, self.percent), is_met)


def read_target(written: str, jobs: Sequence[TraceJob], policy: Policy) -> WaitTarget:
    """Read `pNN wait [of [class|slo|queue|type] NAME] < DURATION`. Raises PhraseError."""
    words = [(match[0], match.start() + 1) for match in _WORD.finditer(written)]
    end = len(written.rstrip()) + 1
    statistic, place = words[0] if words else ("", 1)
    percent = _percent(statistic, place)
    word, place = words[1] if len(words) > 1 else ("", end)
    if word != "wait":
        said = f"{word!r} is not what can be asked for" if word else "it does not say of what"
        raise PhraseError(place, said, f"Only wait can be a target. {EXAMPLE}")
    at = next((index for index, (known, _) in enumerate(words) if known.startswith("<")), len(words))
    if at == len(words):
        raise PhraseError(end, "there is no limit", f"End it with < and a duration. {EXAMPLE}")
    population, name = _population(words[2:at], words[at][1], jobs, policy)
    found = WaitTarget(percent, population, name, _limit(written, words, at))
    if not any(found.covers(one, with_queues_of(jobs, policy)[0]) for one in jobs):
        fix = "Name a class, queue or type that had jobs in this time."
        raise PhraseError(words[at - 1][1], f"no job of this time is of {population} {name}", fix)
    return found


def _percent(word: str, place: int) -> int:
    percentile = _PERCENTILE.fullmatch(word)
    if percentile:
        return int(percentile[1])
    if word in _NAMED:
        return _NAMED[word]
    known = f"It begins with p1 to p99, median or max. {EXAMPLE}"
    raise PhraseError(place, f"{word!r} is no percentile" if word else "there is nothing in it", known)


def _limit(written: str, words: Sequence[tuple[str, int]], at: int) -> Duration:
    sign, place = words[at]
    if sign != "<":
        raise PhraseError(place, f"{sign!r} is not understood", f"A wait is to be below its limit: <. {EXAMPLE}")
    if len(words) == at + 1:
        raise PhraseError(len(written.rstrip()) + 1, "there is no limit after <", EXAMPLE)
    word, place = words[at + 1]
    if len(words) > at + 2:
        further, place = words[at + 2]
        raise PhraseError(place, f"{further!r} stands after the limit", "Leave it out: one target is one comparison.")
    try:
        limit = Duration.parse(word)
    except ValueError as error:
        raise PhraseError(place, str(error), EXAMPLE) from error
    if not limit:
        raise PhraseError(place, "no wait is below 0s", "Name a longer time.")
    return limit


def _population(
    words: Sequence[tuple[str, int]], end: int, jobs: Sequence[TraceJob], policy: Policy
) -> tuple[Population, str]:
    if not words:
        return "all", ""
    if words[0][0] != "of":
        raise PhraseError(words[0][1], f"{words[0][0]!r} is not understood", f"Did you mean of? {EXAMPLE}")
    named = words[1:]
    if not named:
        raise PhraseError(end, "there is no name after of", EXAMPLE)
    known = _names(jobs, policy)
    kinds: Iterable[Population] = known
    if len(named) == 2 and named[0][0] in _POPULATIONS:
        kinds = [kind for kind in known if kind == named[0][0]]
        named = named[1:]
    if len(named) > 1:
        raise PhraseError(named[1][1], f"{named[1][0]!r} is not understood", f"Name one of them. {EXAMPLE}")
    name, place = named[0]
    found = [kind for kind in kinds if name in known[kind]]
    if not found:
        every = sorted({each for kind in kinds for each in known[kind]})
        what = "class, queue or GPU type" if len(list(kinds)) > 1 else str(next(iter(kinds)))
        raise PhraseError(place, f"there is no {what} {name}", did_you_mean(name, every) or EXAMPLE)
    if "class" in found and "slo" in found:
        found.remove("slo")  # Its class is the closer one, and `of slo NAME` says the other.
    if len(found) > 1:
        choice = " or ".join(f"'of {kind} {name}'" for kind in found)
        raise PhraseError(place, f"{name} is the name of more than one", f"Write {choice}.")
    return found[0], name


def _names(jobs: Sequence[TraceJob], policy: Policy) -> dict[Population, set[str]]:
    """What can be named."""
    whole, _ = with_queues_of(jobs, policy)
    classes = {known.name for known in whole.priority_classes} | {
        name for one in jobs if (name := whole.priority_class_name(one.job))
    }
    types = {known for one in jobs for group in one.job.spec.task_groups for known in group.shape.gpu_types}
    return {
        "class": classes,
        "slo": set(SLO_CLASSES),
        "queue": {str(queue.name) for queue in whole.queues},
        "type": {str(known) for known in types},
    }
