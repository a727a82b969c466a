"""Solves a recorded round again and compares: the same snapshot and policy must give the same plan, byte for byte."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from reconciler.control.recording import optimiser_of
from reconciler.protocols.rounds import NarrowRecord, RoundRecord
from solver.milp.optimiser import Optimiser
from solver.model.document import API_VERSION, Document, digest, encode
from solver.narrow.narrow_world import NarrowDecision, NarrowStep, NarrowWorld, without_steps_of
from solver.round.solve import decide


class Replayed(Document, frozen=True, omit_defaults=False):
    """What came of it. `difference` is the first place where the plans differ; "" where they are identical."""

    round: int
    identical: bool
    recorded_plan: str
    replayed_plan: str
    difference: str
    from_recorded_answer: bool
    """A clock had decided the round, or the program could not: what came of it was recorded, and is not computed again."""
    api_version: Literal["quorate.dev/v1"] = API_VERSION
    kind: Literal["Replayed"] = "Replayed"


def replay(record: RoundRecord, optimiser: Optimiser) -> Replayed:
    """Solve a round again. Pure, but for the optimiser handed in. Raises BadRecordingError."""
    if record.narrow:
        return _replay_narrow(record)
    answer = decide(record.snapshot, record.policy, optimiser_of(record.solution, optimiser))
    # Of a round that was cut short after its deed there is no more.
    plan = answer.plan() if record.is_whole else answer.deed()
    before, after = encode(record.plan), encode(plan)
    return Replayed(
        record.number,
        before == after,
        digest(record.plan),
        digest(plan),
        first_difference(msgspec.json.decode(before), msgspec.json.decode(after)),
        bool(record.solution),
    )


def _replay_narrow(record: RoundRecord) -> Replayed:
    """Serve the jobs again that were served alone, one after the other up to those that were asked for."""
    plan = without_steps_of(record.plan, record.narrow[-1].undone)
    world, steps = NarrowWorld.after(record.snapshot, record.policy, plan), tuple[NarrowStep, ...]()
    for each in record.narrow:
        _follow(world, each)
        steps = tuple(_decided(world, each).steps(record.policy))
    recorded = record.narrow[-1].steps
    difference = first_difference(msgspec.json.decode(encode(recorded)), msgspec.json.decode(encode(steps)), "steps")
    return Replayed(record.number, recorded == steps, digest(recorded), digest(steps), difference, False)


def _follow(world: NarrowWorld, record: NarrowRecord) -> None:
    """What has come about since the record before."""
    world.change(record.changed)
    world.evict(record.evicted)
    taken = 0
    for ends in record.ended:
        for job in record.taken[taken : ends.after]:
            world.take(job, job.placement)
        taken = ends.after
        world.end(ends.jobs, ends.again)
        if ends.is_over:
            world.leave_freed()
    for job in record.taken[taken:]:
        world.take(job, job.placement)
    world.wait(record.waited)
    world.wait(record.unsure, is_sure=False)
    world.withdraw(record.withdrawn)
    world.owed = record.owed
    if record.keeps:
        world.end_evictions()


def _decided(world: NarrowWorld, record: NarrowRecord) -> NarrowDecision:
    if record.came:
        return world.decide(record.came, record.time)
    found = world.found(record.time)
    world.give(found)
    return found


def first_difference(recorded: Any, replayed: Any, place: str = "plan") -> str:
    """Where two documents differ first, and how; "" for equal ones."""
    if recorded == replayed:
        return ""
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        pairs = [(f"{place}.{key}", recorded.get(key), replayed.get(key)) for key in sorted({*recorded, *replayed})]
    elif isinstance(recorded, list) and isinstance(replayed, list) and len(recorded) == len(replayed):
        pairs = [
            (f"{place}[{number}]", old, new) for number, (old, new) in enumerate(zip(recorded, replayed, strict=True))
        ]
    elif isinstance(recorded, list) and isinstance(replayed, list):
        return f"{place} had {len(recorded)} entries and has {len(replayed)} now"
    else:
        return f"{place} was {recorded!r} and is {replayed!r} now"
    return next(filter(None, (first_difference(old, new, where) for where, old, new in pairs)), "")
