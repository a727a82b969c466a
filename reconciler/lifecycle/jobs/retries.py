"""Whether a job that failed begins once more, and when: pure, so that a decision taken again after a crash is the same."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from signal import Signals

from reconciler.model.failure import Failure, FailureKind
from reconciler.model.retry_policy import DEFAULTS, Backoff, FailurePattern, RetryAction, RetryPolicy
from reconciler.protocols.backend import TaskStatus
from solver.model.quantities import Duration, Instant
from solver.model.workload import JobName

NOT_RUNNABLE = (126, 127)
"""What a shell says of a command that can't be run, or is not there (POSIX, Shell & Utilities 2.8.2)."""

DEATH_BY_SIGNAL = 128
"""A shell adds the signal's number to this."""

NEAR_THE_LIMIT = 0.95
"""A task that is killed while it has so much of its memory was, as far as can be told, killed for it."""

GPU_MEMORY_SIGNS = ("CUDA out of memory", "torch.OutOfMemoryError", "CUDA_ERROR_OUT_OF_MEMORY", "RESOURCE_EXHAUSTED")
"""What PyTorch, the CUDA driver and JAX write last when a GPU has no more memory."""

_MEMORY_SIGNS = (*GPU_MEMORY_SIGNS, "MemoryError")

QUIET = Duration(3_600_000)
"""A job that has gone on for so long since the last rest has begun well: the next failure is the first of a new row."""

# The longest rest is reached long before; and no float overflows.
_EXPONENT_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Mishap:
    """One failure of a gang before it is decided what follows: `group` and `exit_code` are of the task that failed first.

    `log`: the last lines of that task's log, as far as they are known.
    """

    attempt: int
    kind: FailureKind
    at: Instant
    message: str
    group: str = ""
    exit_code: int | None = None
    log: str = ""


def classify(task: TaskStatus, log: str = "", gpu_broken: bool = False) -> FailureKind:
    """What kind of failure a task that failed or was lost shows. `gpu_broken`: one of its GPUs is reported as unhealthy."""
    if gpu_broken:
        return "gpu"
    if task.state == "lost":
        return "node"
    if _ran_out_of_memory(task, log):
        return "out-of-memory"
    if task.exit_code in NOT_RUNNABLE:
        return "launch"
    return "signal" if signal_of(task.exit_code) else "exit"


def _ran_out_of_memory(task: TaskStatus, log: str) -> bool:
    memory = task.memory
    if memory is not None and memory.exceeded:
        return True
    killed = signal_of(task.exit_code) == "SIGKILL"
    if killed and memory is not None and memory.limit and memory.peak >= NEAR_THE_LIMIT * memory.limit:
        return True
    return any(sign in log for sign in _MEMORY_SIGNS)


def signal_of(exit_code: int | None) -> str:
    """The name of the signal that ended a task, going by its exit code; "" where none did."""
    number = (exit_code or 0) - DEATH_BY_SIGNAL
    return Signals(number).name if number in {known.value for known in Signals} else ""


def retry_of(job: JobName, mishap: Mishap, before: tuple[Failure, ...], policy: RetryPolicy) -> Failure | None:
    """The failure to keep if the job begins once more; None: it has failed for good. `before`: its failures so far."""
    action = action_for(mishap, policy)
    counts = action == "retry"
    if action == "fail" or (counts and sum(failure.counts for failure in before) >= policy.max_retries):
        return None
    rest = rest_before(job, mishap.attempt, in_a_row(before, mishap.at, policy.backoff), policy.backoff)
    return Failure(
        mishap.attempt, mishap.kind, mishap.at, mishap.at.after(rest), counts, mishap.exit_code, mishap.message
    )


def action_for(mishap: Mishap, policy: RetryPolicy) -> RetryAction:
    """What the first rule says that is for this failure."""
    return next(rule.action for rule in (*policy.rules, *DEFAULTS) if _is_for(rule.on, mishap))


def _is_for(on: FailurePattern, mishap: Mishap) -> bool:
    return (
        (not on.exit_codes or mishap.exit_code in on.exit_codes)
        and (not on.signals or signal_of(mishap.exit_code) in on.signals)
        and (not on.kinds or mishap.kind in on.kinds)
        and (not on.groups or mishap.group in on.groups)
        and on.log_contains in mishap.log
    )


def in_a_row(before: tuple[Failure, ...], at: Instant, backoff: Backoff) -> int:
    """How many failures came in quick succession before this one."""
    row, later = 0, at
    for failure in sorted(before, key=lambda failure: failure.at, reverse=True):
        if later - failure.at > backoff.max + QUIET:
            break
        row, later = row + 1, failure.at
    return row


def rest_before(job: JobName, attempt: int, row: int, backoff: Backoff) -> Duration:
    """How long to rest after an attempt that failed, when `row` failures came right before: the same whenever it is asked."""
    growth = math.exp(min(row * math.log(backoff.factor), _EXPONENT_MAX))
    even = min(float(backoff.max), backoff.initial * growth)
    return Duration(round(even * (1 + backoff.jitter * _chance(job, attempt))))


def _chance(job: JobName, attempt: int) -> float:
    """From -1 up to 1, evenly, by digest: neither a clock nor chance, so that deciding again decides the same."""
    digest = hashlib.sha256(f"{job}/{attempt}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**63 - 1
