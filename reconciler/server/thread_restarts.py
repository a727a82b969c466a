"""Lets a thread begin anew while the store can't be reached. What it had in hand is found in the store again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from structlog.typing import FilteringBoundLogger

from reconciler.protocols.stores import StoreUnreachableError
from reconciler.server.parts import ServerThread

AGAIN_AFTER_S: Final = 1.0


def persevering(
    member: ServerThread, log: FilteringBoundLogger, rest: Callable[[float], None] = time.sleep
) -> Callable[[], None]:
    """What to run in place of `member.run`: the same, again and again until it returns or fails for another reason."""

    def run() -> None:
        while True:
            try:
                member.run()
            except StoreUnreachableError as error:
                # The loop meets the same and tells the log; here it is one line of many.
                log.debug("store-unreachable", thread=member.name, message=str(error))
                rest(AGAIN_AFTER_S)
            else:
                return

    return run
