"""Names for jobs that were given none: `train-7k2f` for `python train.py`."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Final

_CHARACTERS: Final = "23456789bcdfghjkmnpqrstvwxz"
"""None that is easily taken for another, and no vowel that would make words."""
_RANDOM: Final = 4
_LONGEST: Final = 24
_STARTERS: Final = re.compile(
    r"(python|pypy)[0-9.]*|(ba|da|z)?sh|env|exec|nice|time|timeout|torchrun|accelerate|deepspeed|uv|poetry|run|launch|srun|mpirun"
)
"""Programs that run another, whose name says more."""
_ENDING: Final = re.compile(r"\.(py|sh|bash|R|jl|pl)$")


def made_up_name(command: Sequence[str]) -> str:
    """A name that says what the command runs, with characters by chance that keep it apart from others."""
    stem = next(_stems(command), "job")
    return f"{stem}-{''.join(secrets.choice(_CHARACTERS) for _ in range(_RANDOM))}"


def _stems(command: Sequence[str]) -> Iterator[str]:
    """What the words of a command would make of it, those of programs that run another and of options left out."""
    for word in command:
        program = PurePath((word.split() or [""])[0]).name
        if word.startswith("-") or "=" in program or _STARTERS.fullmatch(program):
            continue
        stem = re.sub(r"[^a-z0-9]+", "-", _ENDING.sub("", program).lower())[:_LONGEST].strip("-")
        if stem and not stem.isdecimal():
            yield stem
