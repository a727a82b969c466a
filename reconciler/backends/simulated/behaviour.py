"""How simulated tasks behave, read from their commands, and how unkind the simulated world is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from solver.model.document import Document
from solver.model.quantities import Duration, Instant, Memory
from solver.model.workload import JobSpec

DEFAULT_DURATION = Duration(60_000)
_NEVER = Duration(0)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Ends by itself after `lasts` with `exit_code`; None lasts until it is stopped. `busy`: for how long it does something.

    `saves`: how long it takes to save its work when it is told to; then it goes on. `rate`: steps a second that it does and
    reports, until it `hangs`, so long after it began (None: never). `memory`: what it has soon after it begins.
    """

    lasts: Duration | None
    exit_code: int = 0
    busy: Duration | None = None
    saves: Duration | None = None
    rate: float = 0.0
    hangs: Duration | None = None
    memory: Memory = Memory(0)  # noqa: RUF009  (an int: can't be changed)

    def active_at(self, begin: Instant, now: Instant) -> Instant:
        """When a task that has begun did something last."""
        return now if self.busy is None else min(now, begin.after(self.busy))


BehaviourOf = Callable[[JobSpec, str], Behaviour]
"""From a job's spec and the name of a task group."""


def by_command(spec: JobSpec, group: str) -> Behaviour:
    """`sleep 30s` succeeds after 30 s, `sleep forever` runs on, `fail 3 30s` ends with 3 after 30 s.

    None of them does anything. `busy forever` does until it is stopped, `busy 30s` for 30 s, and then nothing for ever.
    `save 3s` saves for 3 s each time that it is told to, `train 2.5` does 2.5 steps a second, `hang 2.5 30s`
    does so for 30 s and then none, busy all the time, `hog 2Gi` has so much memory: all until they are
    stopped. Any other command succeeds after DEFAULT_DURATION, and does something all the time.
    """
    own = next(known.command for known in spec.task_groups if known.name == group)
    return behaviour_of(own or spec.command)


def behaviour_of(command: Sequence[str]) -> Behaviour:
    """The same of one task, whose command is known."""
    match tuple(command):
        case ("sleep", "forever"):
            return Behaviour(None, busy=_NEVER)
        case ("sleep", span):
            return Behaviour(Duration.parse(span), busy=_NEVER)
        case ("fail", exit_code, span):
            return Behaviour(Duration.parse(span), int(exit_code), busy=_NEVER)
        case ("busy", "forever"):
            return Behaviour(None)
        case ("busy", span):
            return Behaviour(None, busy=Duration.parse(span))
        case ("save", span):
            return Behaviour(None, saves=Duration.parse(span))
        case ("train", rate):
            return Behaviour(None, rate=float(rate))
        case ("hang", rate, span):
            return Behaviour(None, rate=float(rate), hangs=Duration.parse(span))
        case ("hog", memory):
            return Behaviour(None, memory=Memory.parse(memory))
        case _:
            return Behaviour(DEFAULT_DURATION)


class Faults(Document, frozen=True):
    """Probabilities per message, and the longest of each delay; delays are drawn evenly from 0 up.

    `lost`: the order vanishes. `late`: it arrives after the sender has given up. `unacknowledged`: it arrives and the
    sender never hears so. All three are a BackendUnreachableError to the sender. `blind`: `changes` is unreachable.
    `unpartitioned`: a GPU that is to be partitioned anew stops half-way, without what was to go and without what was to come.
    `unwatched`: a look at what a task does is left out.
    """

    lost: float = 0.0
    late: float = 0.0
    unacknowledged: float = 0.0
    blind: float = 0.0
    unpartitioned: float = 0.0
    unwatched: float = 0.0
    arrival_delay: Duration = Duration(0)
    effect_delay: Duration = Duration(0)
    report_delay: Duration = Duration(0)


KIND = Faults()
UNKIND = Faults(
    lost=0.1,
    late=0.1,
    unacknowledged=0.1,
    blind=0.1,
    unpartitioned=0.1,
    unwatched=0.3,
    arrival_delay=Duration(60_000),
    effect_delay=Duration(8_000),
    report_delay=Duration(5_000),
)
"""A late order may arrive long after the start deadline of the tests has passed: that is the dangerous case."""
