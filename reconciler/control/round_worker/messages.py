"""What a control plane and the process that decides its rounds say to each other, in the frames of the optimiser."""

from __future__ import annotations

from typing import Final

import msgspec

from reconciler.control.optimiser.wire import WireError
from reconciler.control.queue_use import QueueUse
from solver.model.document import pack, unpack
from solver.model.snapshot import Snapshot
from solver.model.snapshot_patch import SnapshotPatch
from solver.plan.plan import Plan
from solver.plan.violation import Violation
from solver.policy.policy import Policy

ANSWER_BYTES_MAX: Final = 1 << 28
"""Far more than any plan has: 100,000 GPUs with 5,000 jobs that wait have one of 2.3 MB."""


class RoundQuestion(msgspec.Struct, frozen=True):
    """A round to decide: on a snapshot that is sent whole, or as what has changed since the one before.

    `policy` None: as before.
    """

    snapshot: Snapshot | None = None
    patch: SnapshotPatch | None = None
    policy: Policy | None = None


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """The round is being decided."""


class RoundNote(msgspec.Struct, frozen=True, tag="note"):
    """Something to be told to people, of the optimiser."""

    message: str


class RoundPart(msgspec.Struct, frozen=True, tag="part"):
    """The deed, or the whole plan. `solution`: what replaying it needs."""

    plan: Plan
    solution: str


class RoundJudgement(msgspec.Struct, frozen=True, tag="judgement"):
    """What the checker found in the part before: violations, or, after the whole plan was judged, what it falls short of."""

    found: tuple[Violation, ...]


class RoundUses(msgspec.Struct, frozen=True, tag="uses"):
    """What the queues of the policy hold and want, in its order."""

    uses: tuple[QueueUse, ...]


class RoundFailure(msgspec.Struct, frozen=True, tag="failure"):
    """The solver or the checker failed where a part or a judgement was due."""

    message: str


class RoundOver(msgspec.Struct, frozen=True, tag="over"):
    """Nothing more comes of this round."""


RoundMessage = Heartbeat | RoundNote | RoundPart | RoundJudgement | RoundUses | RoundFailure | RoundOver
"""In their order: the deed, its judgement; the whole plan, its judgement, what it falls short of; what queues use; that it is over.

A failure in place of any, or violations, are the last before that. Heartbeats and notes come in between.
"""


def message_of(frame: bytes) -> RoundMessage:
    """What the worker said. Raises WireError."""
    try:
        message: RoundMessage = unpack(frame, RoundMessage)
    except (msgspec.DecodeError, NotImplementedError) as error:
        raise WireError(f"did not send a well-formed answer: {error}") from error
    return message


def question_of(frame: bytes) -> RoundQuestion:
    """What is asked. Raises WireError."""
    try:
        question: RoundQuestion = unpack(frame, RoundQuestion)
    except (msgspec.DecodeError, NotImplementedError) as error:
        raise WireError(f"did not send a well-formed question: {error}") from error
    return question


def frame_of(message: RoundQuestion | RoundMessage) -> bytes:
    """A message as the content of a frame."""
    return pack(message)
