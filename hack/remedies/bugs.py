"""Verdicts that leave something out, on purpose: trials that all succeed would prove nothing if they did so here as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from hack.remedies.trials import trials
from solver.quota.entitlement import QuotaHeadroom
from solver.round import shortage
from solver.round.verdicts import Waiting


def shapes_do_not_matter() -> Any:
    """More GPUs are said to do, whatever their nodes."""
    return mock.patch.object(shortage, "least_freed", return_value=0)


def nothing_is_lacking_beside_gpus() -> Any:
    """That CPU is short where GPUs are free is kept quiet while there are too few of these."""
    return mock.patch.object(shortage, "_too_little_beside", return_value=())


def one_max_is_named_of_several() -> Any:
    """The queue above would be at its max, too."""
    sound = QuotaHeadroom.blocking
    return mock.patch.object(QuotaHeadroom, "blocking", lambda *asked: list(sound(*asked))[:1])


def what_a_user_may_hold_is_kept_quiet() -> Any:
    """The cap per user binds and is not named."""

    def unsaid(self: Waiting, *asked: Any) -> Iterator[Any]:
        for reason in sound(self, *asked):
            if getattr(reason, "user", None) is None:
                yield reason

    sound = Waiting._binding
    return mock.patch.object(Waiting, "_binding", unsaid)


BUGS: tuple[Callable[[], Any], ...] = (
    shapes_do_not_matter,
    nothing_is_lacking_beside_gpus,
    one_max_is_named_of_several,
    what_a_user_may_hold_is_kept_quiet,
)


def caught_by(bug: Callable[[], Any], seeds: range) -> int | None:
    """The first seed at which a job does not start that was to."""
    with bug():
        for seed in seeds:
            if any(trial.alone and trial.steps != 1 for trial in trials(seed)):
                return seed
    return None
