"""Amounts as Slurm writes them: trackable resources, shares, times."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final, NamedTuple

from reconciler.documents.slurm.amounts import seconds
from solver.model.quantities import Duration

_GPU = re.compile(r"gres/gpu(?::(.+))?")
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)", re.IGNORECASE)
_POWERS: Final = {"": 20, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}
ENDLESS: Final = ("infinite", "unlimited", "-1", "none", "")


class Tres(NamedTuple):
    """Amounts of a list of trackable resources. `gpus`: by type, "" for all types together; `others`: names of the rest."""

    gpus: dict[str, Fraction]
    host: dict[str, Fraction]
    others: list[str]


def tres(written: str) -> Tres:
    """`gres/gpu:h100=32,cpu=512,mem=2T` as amounts; -1 is no limit, and left out. Raises ValueError."""
    found = Tres({}, {}, [])
    for part in filter(None, (each.strip() for each in written.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} is not like gres/gpu=8")
        if value in ("-1", ""):
            continue
        matched = _GPU.fullmatch(name.lower())
        if matched:
            kind = name[len("gres/gpu:") :] if matched[1] else ""
            found.gpus[kind] = Fraction(_whole(value))
        elif name.lower() == "cpu":
            found.host["cpu"] = Fraction(_whole(value))
        elif name.lower() == "mem":
            found.host["memory"] = _memory(value)
        else:
            found.others.append(name)
    return found


def duration(written: str) -> str | None:
    """A time as documents write it; None where there is no limit. Raises ValueError."""
    if written.lower() in ENDLESS:
        return None
    found = seconds(written)
    return None if found is None else str(Duration(found * 1000))


def _memory(written: str) -> Fraction:
    """Bytes; megabytes where no unit is said. `sacctmgr` prints 1.50T where it was set so."""
    matched = _MEMORY.fullmatch(written)
    if matched is None:
        raise ValueError(f"{written!r} is no amount of memory such as 4000M or 2T")
    return Fraction(matched[1]) * (1 << _POWERS[matched[2].upper()])


def _whole(value: str) -> int:
    if not value.isdecimal():
        raise ValueError(f"{value!r} is no number")
    return int(value)
