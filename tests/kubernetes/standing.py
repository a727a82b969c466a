"""A candidate stands for as long as a test needs it, and has given up what it held before its session is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from reconciler.kubernetes.client.leader import Election


@asynccontextmanager
async def standing(election: Election) -> AsyncIterator[None]:
    """Use it inside the block of its session: it resigns through that."""
    running = asyncio.create_task(election.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])
