"""What the API server says comes late at random, in tests and in the control planes they start: `pytest --late SEED`.

What holds only because two answers follow each other closely fails then.
`python -m tests.kubernetes.late SEED ARGUMENTS` is `quorate ARGUMENTS` with that.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from random import Random
from typing import Any

from reconciler.cli.main import main
from reconciler.kubernetes.client.api import Api

LONGEST_S = (0.01, 0.15, 0.8)
OF_A_HUNDRED = (80, 16, 4)


class Lateness:
    """How much longer each takes: most hardly, some long enough for whatever goes on beside."""

    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)

    async def rest(self) -> None:
        (longest_s,) = self._chance.choices(LONGEST_S, OF_A_HUNDRED)
        await asyncio.sleep(self._chance.random() * longest_s)


def begin(seed: int) -> None:
    """From now on requests of this process leave late and are answered late, and so comes what watches tell."""
    once, stream, rest = Api._once, Api.stream, Lateness(seed).rest

    async def late(api: Api, *asked: Any) -> bytes:
        await rest()
        try:
            return await once(api, *asked)
        finally:
            await rest()

    async def trickling(api: Api, path: str, parameters: Mapping[str, str], silence_s: float) -> AsyncGenerator[bytes]:
        async with aclosing(stream(api, path, parameters, silence_s)) as lines:
            async for some in lines:
                await rest()
                yield some

    Api._once, Api.stream = late, trickling  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    begin(int(sys.argv.pop(1)) ^ os.getpid())
    main()
