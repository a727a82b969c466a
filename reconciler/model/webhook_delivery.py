"""How far a webhook is, and what follows from each try. Pure, and all there is to remember of it."""

from __future__ import annotations

from typing import Final

import msgspec

from solver.model.document import Document
from solver.model.quantities import Duration, Instant

BACKOFF_FIRST: Final = Duration(1_000)
BACKOFF_MAX: Final = Duration(10 * 60_000)
"""The longest rest that we choose ourselves: a receiver that comes back hears of it within ten minutes."""

JITTER: Final = 0.25
"""By what part of it a rest is longer or shorter, so that webhooks on one receiver don't come back together."""

RETRY_AFTER_MAX: Final = Duration(24 * 3_600_000)
"""What a receiver may ask for: a number without bounds would silence it for ever by one mistake."""

_DOUBLINGS_MAX: Final = 30


class DeliveryResult(Document, frozen=True):
    """What came of one try; `problem` "": it was taken.

    `retry_after`: the rest that the receiver asks for. `gone`: it wants no more, ever.
    """

    problem: str = ""
    retry_after: Duration = Duration(0)
    gone: bool = False


class DeliveryState(Document, frozen=True, omit_defaults=False):
    """One webhook: every event up to `cursor` has been dealt with. `target` names where it led at last.

    `problem`: what came of the newest try where that failed, and all `tries` of it since `failing_since`.
    `stopped`: the receiver wants no more. `given_up` counts events that were never delivered.
    """

    webhook: str
    cursor: int
    target: str
    delivered: int = 0
    given_up: int = 0
    answered_at: Instant | None = None
    failing_since: Instant | None = None
    tries: int = 0
    not_before: Instant = Instant(0)
    problem: str = ""
    stopped: bool = False

    def is_due(self, now: Instant) -> bool:
        """Whether it may be tried."""
        return not self.stopped and self.not_before <= now

    def led_to(self, target: str) -> DeliveryState:
        """It leads elsewhere now: what failed there says nothing of here."""
        return DeliveryState(self.webhook, self.cursor, target, self.delivered, self.given_up, self.answered_at)

    def past(self, number: int) -> DeliveryState:
        """An event that this webhook is not told."""
        return msgspec.structs.replace(self, cursor=number)

    def gave_up(self, number: int) -> DeliveryState:
        """An event that was not taken in time."""
        return msgspec.structs.replace(self, cursor=number, given_up=self.given_up + 1)

    def after(self, number: int, answer: DeliveryResult, now: Instant, chance: float) -> DeliveryState:
        """What follows from a try to tell it an event. `chance`: from 0 up to 1."""
        if not answer.problem:
            return DeliveryState(self.webhook, number, self.target, self.delivered + 1, self.given_up, answered_at=now)
        rest = max(int(answer.retry_after), _rest(self.tries, chance))
        return msgspec.structs.replace(
            self,
            failing_since=self.failing_since or now,
            tries=self.tries + 1,
            not_before=now.after(min(rest, int(RETRY_AFTER_MAX))),
            problem=answer.problem,
            stopped=answer.gone,
        )


def _rest(tries: int, chance: float) -> int:
    even = min(int(BACKOFF_MAX), int(BACKOFF_FIRST) << min(tries, _DOUBLINGS_MAX))
    return round(even * (1 + JITTER * (2 * chance - 1)))
