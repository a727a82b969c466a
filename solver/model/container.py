"""In what the tasks of a job run that are no plain processes of their node."""

from __future__ import annotations

from typing import Literal

from solver.model.document import Document


class Container(Document, frozen=True):
    """In what tasks run: `image`, with the host's network or none; `read_only`: they may write to folders of their own alone."""

    image: str
    network: Literal["host", "none"] = "host"
    read_only: bool = False
