"""What goes over a WebSocket beside the bytes of a terminal: sizes of windows, and why it ends."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from reconciler.protocols.terminals import TYPED_BYTES_MAX, WINDOW_MAX
from solver.model.document import Document

MESSAGE_BYTES_MAX: Final = TYPED_BYTES_MAX
"""The longest message that the server takes."""

Cells = Annotated[int, msgspec.Meta(ge=1, le=WINDOW_MAX)]

DetachReason = Literal["ended", "lost", "expired", "not-allowed", "bad-message"]


class WindowSize(Document, frozen=True):
    """Said by an attached client: its window has this size."""

    rows: Cells
    columns: Cells


class Detached(Document, frozen=True, omit_defaults=False):
    """The server's last word. `ended`: so has the task, with `exit_code`; `stopped`: because it was told to."""

    reason: DetachReason
    message: str = ""
    exit_code: int | None = None
    stopped: bool = False
