"""Makes asyncio's TLS connections small: each keeps a buffer for what arrives, and thousands of agents say little."""

from __future__ import annotations

from asyncio.sslproto import SSLProtocol
from typing import Final

TLS_RECORD_BYTES: Final = 2**14
"""The most that one record carries (RFC 8446, 5.1). More at once is read in several steps."""


def keep_read_buffers_small() -> None:
    """Of all TLS connections that asyncio opens in this process from now on.

    CPython has 256 KiB for each, and zeroes them, so that all of it is memory in use: 3.2 GB for 12,500 agents.
    """
    SSLProtocol.max_size = TLS_RECORD_BYTES
