"""Verdicts that leave something out, on purpose: trials that all succeed would prove nothing if they did so here as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

import msgspec

from hack.remedies.kinds import Kind
from hack.remedies.trials import trials
from solver.model.quantities import MilliGpu
from solver.model.shape import SharedShape
from solver.model.workload import JobSpec
from solver.plan.reasons import AnyReason, CapacityReason
from solver.quota.entitlement import QuotaHeadroom
from solver.quota.options import Option
from solver.round import instance_shortage, shortage
from solver.round.lending_ahead import LendingAhead
from solver.round.shortage import Shortage
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


def instances_are_counted_group_by_group() -> Any:
    """Each group of a gang has instances enough, and all of them together have not."""
    return mock.patch.object(shortage, "too_few_instances", return_value=())


def a_gang_of_parts_is_counted_as_one_task() -> Any:
    """Less is said to be lacking than the tasks of a gang need together."""

    def understated(self: Shortage, spec: JobSpec, option: Option) -> Iterator[AnyReason]:
        part = max((shape.cost for shape in option.shapes if isinstance(shape, SharedShape)), default=None)
        for reason in sound(self, spec, option):
            if part and isinstance(reason, CapacityReason):
                yield msgspec.structs.replace(reason, wanted=min(reason.wanted, MilliGpu(reason.free + part)))
            else:
                yield reason

    sound = Shortage.reasons
    return mock.patch.object(Shortage, "reasons", understated)


def groups_are_counted_as_they_are_written() -> Any:
    """What is lacking is told of the last group, though the others are placed after it."""
    return mock.patch.object(instance_shortage, "placing_order", lambda _, shapes: list(range(len(shapes))))


def nobody_keeps_back_more_later() -> Any:
    """That a queue keeps back more once there are more GPUs, or a larger guarantee, is kept quiet."""
    return mock.patch.object(LendingAhead, "of", return_value=())


def any_rack_will_do() -> Any:
    """More CPU is said to do for a gang that has to be in one rack, whichever that is."""
    return mock.patch.object(shortage, "_fit_elsewhere", return_value=False)


BUGS: dict[Callable[[], Any], Kind] = {
    shapes_do_not_matter: "whole",
    nothing_is_lacking_beside_gpus: "whole",
    one_max_is_named_of_several: "whole",
    what_a_user_may_hold_is_kept_quiet: "whole",
    instances_are_counted_group_by_group: "mig",
    a_gang_of_parts_is_counted_as_one_task: "parts",
    groups_are_counted_as_they_are_written: "mig",
    nobody_keeps_back_more_later: "parts",
    any_rack_will_do: "whole",
}
"""Each with the kind of worlds in which it shows."""


def caught_by(bug: Callable[[], Any], seeds: Iterable[int], kind: Kind) -> int | None:
    """The first seed at which a job does not start that was to."""
    with bug():
        for seed in seeds:
            if any(trial.alone and trial.steps != 1 for trial in trials(seed, kind)):
                return seed
    return None
