"""How long a simulated task takes and how it ends, read from its command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from solver.world.quantities import Duration
from solver.world.workload import JobSpec

DEFAULT_DURATION = Duration(60_000)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Ends by itself after `lasts` with `exit_code`; None lasts until it is stopped."""

    lasts: Duration | None
    exit_code: int = 0


BehaviourOf = Callable[[JobSpec, str], Behaviour]
"""From a job's spec and the name of a task group."""


def by_command(spec: JobSpec, group: str) -> Behaviour:
    """`sleep 30s` succeeds after 30 s, `sleep forever` runs on, `fail 3 30s` ends with 3 after 30 s.

    Any other command succeeds after DEFAULT_DURATION.
    """
    own = next(known.command for known in spec.task_groups if known.name == group)
    match own or spec.command:
        case ("sleep", "forever"):
            return Behaviour(None)
        case ("sleep", span):
            return Behaviour(Duration.parse(span))
        case ("fail", exit_code, span):
            return Behaviour(Duration.parse(span), int(exit_code))
        case _:
            return Behaviour(DEFAULT_DURATION)
