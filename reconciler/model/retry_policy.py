"""What a RetryPolicy says: which failures of a job are worth another attempt, how many, and how long to rest before each."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document
from solver.model.quantities import Duration

RetryAction = Literal["retry", "fail", "ignore-count"]
"""`ignore-count`: another attempt that is not counted against the job."""

RetriedKind = Literal["exit", "signal", "out-of-memory", "node", "gpu", "launch", "time-limit", "stuck"]
"""The kinds of failure that a rule may speak of."""


class Backoff(Document, frozen=True):
    """The rest before the next attempt: `initial`, then `factor` times the last, up to `max`.

    `jitter`: by what part of it a rest is longer or shorter, so that jobs that failed together don't begin together.
    """

    initial: Duration = Duration(10_000)
    factor: float = 2.0
    max: Duration = Duration(600_000)
    jitter: float = 0.2


class FailurePattern(Document, frozen=True):
    """Which failures a rule is for: those of which everything holds that it says. `signals` by name, such as SIGSEGV.

    `log_contains`: one of the last lines of the log of the task that failed contains this text.
    """

    exit_codes: tuple[int, ...] = ()
    signals: tuple[str, ...] = ()
    kinds: tuple[RetriedKind, ...] = ()
    groups: tuple[str, ...] = ()
    log_contains: str = ""


class RetryRule(Document, frozen=True):
    """What follows from a failure of this pattern."""

    on: FailurePattern
    action: RetryAction


class RetryPolicy(Document, frozen=True):
    """Up to `max_retries` attempts more for failures that count.

    The first of `rules` that is for a failure decides what follows, and behind them DEFAULTS.
    """

    name: str
    max_retries: int = 3
    backoff: Backoff = Backoff()
    rules: tuple[RetryRule, ...] = ()
    origin: str = ""


DEFAULTS: tuple[RetryRule, ...] = (
    # The machine's fault, not the job's: it would be unjust to count it.
    RetryRule(FailurePattern(kinds=("node", "gpu")), "ignore-count"),
    # The same again: a program that can't be started, too little memory, a limit that a user set on purpose.
    RetryRule(FailurePattern(kinds=("launch", "out-of-memory", "time-limit")), "fail"),
    RetryRule(FailurePattern(), "retry"),
)
"""The rules behind those of every policy."""

NO_RETRIES = RetryPolicy("", max_retries=0)
"""For a job that names no policy, or one that is no more: only what is the machine's fault is tried again."""
