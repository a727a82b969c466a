"""How records of rounds are packed: now and then one as a whole, a keyframe, and of those after it only what is new against it.

Rounds that follow each other differ in little. Zstandard (RFC 8878) matches a record against the whole text of its keyframe, so
nothing here knows what a record is made of.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from typing import Final

from reconciler.protocols.backend import Epoch

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

KEYFRAME_EVERY: Final = 100
"""Rounds after which one is packed as a whole again, so that old ones can be pruned."""

PATCH_MAX: Final = 0.5
"""As large may a patch be, in parts of its keyframe as packed; what is larger is the next keyframe."""

_LEVEL: Final = 3
_WINDOW_LOG_MIN, _WINDOW_LOG_MAX = 10, 27
"""Window sizes as powers of two, in bytes. Every reader takes up to 27 unless told otherwise: 128 MiB (RFC 8878, 3.1.1.1.2)."""

_ZLIB_HEADER: Final = b"\x78"
"""How records begin that older releases packed."""


class BadPackingError(Exception):
    """What is stored can't be unpacked."""


@dataclass(slots=True)
class Keyframe:
    """The record that others are packed against: its round, its text, as how many bytes it is stored, and how many follow it.

    Of one leader: so those that follow it come right after it.
    """

    epoch: Epoch
    number: int
    text: bytes
    stored_bytes: int
    patches: int = 0

    def patch(self, text: bytes) -> bytes | None:
        """A record as what is new in it; None where it had better be a keyframe itself."""
        if self.patches + 1 >= KEYFRAME_EVERY:
            return None
        patch = pack(text, self.text)
        return patch if len(patch) <= PATCH_MAX * self.stored_bytes else None


def pack(text: bytes, keyframe: bytes = b"") -> bytes:
    """A record against the text of its keyframe, or as a whole."""
    window_log = (len(text) + len(keyframe)).bit_length()
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: _LEVEL,
        zstd.CompressionParameter.enable_long_distance_matching: 1,
        zstd.CompressionParameter.window_log: min(max(window_log, _WINDOW_LOG_MIN), _WINDOW_LOG_MAX),
        zstd.CompressionParameter.checksum_flag: 1,
    }
    return zstd.compress(text, options=options, zstd_dict=_prefix(keyframe))


def unpack(stored: bytes, keyframe: bytes = b"") -> bytes:
    """The record's text. Raises BadPackingError, also for another keyframe than it was packed against."""
    try:
        if stored.startswith(_ZLIB_HEADER):
            return zlib.decompress(stored)
        return zstd.decompress(stored, zstd_dict=_prefix(keyframe))
    except (zstd.ZstdError, zlib.error) as error:
        raise BadPackingError(str(error)) from error


def _prefix(keyframe: bytes) -> tuple[zstd.ZstdDict, int] | None:
    return zstd.ZstdDict(keyframe, is_raw=True).as_prefix if keyframe else None
