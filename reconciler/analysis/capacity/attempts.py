"""What a search has tried, kept in a file, so that one that is interrupted can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from reconciler.analysis.backtest.figures import Figure
from reconciler.analysis.backtest.past import put_in_place
from reconciler.analysis.capacity.report import TriedAddition
from reconciler.analysis.capacity.target import JudgedWait
from solver.model.document import Document, decode, encode


class ForeignAttemptsError(Exception):
    """The file is not of this search. Its message says why."""


class KeptAttempts(Document, frozen=True, omit_defaults=False):
    """`question`: the digest of all that decides the answers."""

    question: str
    tried: tuple[TriedAddition, ...]


@dataclass(frozen=True)
class AttemptFile:
    """The file of one search."""

    path: Path
    question: str

    def read(self) -> dict[int, JudgedWait]:
        """What was tried before; nothing where there is no file. Raises ForeignAttemptsError, OSError."""
        try:
            kept = decode(self.path.read_bytes(), KeptAttempts)
        except FileNotFoundError:
            return {}
        except (msgspec.DecodeError, ValueError) as error:
            raise ForeignAttemptsError(f"it is no file of --keep: {error}") from error
        if kept.question != self.question:
            raise ForeignAttemptsError("it is of another search: other jobs, policy, nodes, options or target")
        return {one.nodes: JudgedWait(Figure(one.wait, one.at_least), one.met) for one in kept.tried}

    def write(self, tried: tuple[TriedAddition, ...]) -> None:
        """Keep what was tried. Raises OSError."""
        unfinished = self.path.with_name(f"{self.path.name}.part")
        unfinished.write_bytes(encode(KeptAttempts(self.question, tried)) + b"\n")
        put_in_place(unfinished, self.path)


def tried_of(tried: Mapping[int, JudgedWait]) -> tuple[TriedAddition, ...]:
    """By their number."""
    return tuple(
        TriedAddition(number, found.wait.value, found.wait.at_least, found.is_met)
        for number, found in sorted(tried.items())
    )
