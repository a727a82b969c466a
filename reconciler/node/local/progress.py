"""Reads what a task says of its own progress: a file that the task may write as it likes, so nothing of it is trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Final

import msgspec

from reconciler.protocols.backend import Progress
from solver.model.quantities import Instant

BYTES_MAX: Final = 4_096


class ReportedProgress(msgspec.Struct, frozen=True):
    """`step`: the last one done; `rate`, `flops`, `tokens`: how many in a second, 0 where the task does not say."""

    step: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    rate: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    flops: Annotated[float, msgspec.Meta(ge=0, le=1e21)] = 0.0
    tokens: Annotated[float, msgspec.Meta(ge=0, le=1e15)] = 0.0


def said_progress(path: Path) -> tuple[Progress | None, str]:
    """What a task said last, and "", or None and what is wrong with it, if it said anything."""
    try:
        # A link could lead to a file of others, and a pipe would wait for a writer.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"its progress file can't be read: {error.strerror}"
    try:
        found = os.fstat(file)
        text = os.read(file, BYTES_MAX) if stat.S_ISREG(found.st_mode) else b""
        said = msgspec.json.decode(text, type=ReportedProgress)
    except msgspec.DecodeError as error:
        return None, f'its progress file is not {{"step": …, "rate": …, "flops": …, "tokens": …}}: {error}'
    finally:
        os.close(file)
    return Progress(said.step, said.rate, Instant(found.st_mtime_ns // 1_000_000), said.flops, said.tokens), ""
