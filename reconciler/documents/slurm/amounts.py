"""How Slurm writes times, memory, GPUs and dependencies; each function raises ValueError for what it can't read."""

from __future__ import annotations

import re
import signal
from typing import Any, Final, NamedTuple

MIB: Final = 2**20
_MEMORY_UNITS = {"": MIB, "K": 2**10, "M": MIB, "G": 2**30, "T": 2**40}
_ENDLESS = {"0", "infinite", "unlimited"}
_TIME = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_CONDITIONS = ("afterok", "afterany", "afternotok")


class GpuRequest(NamedTuple):
    """So many GPUs, of a type where one is said."""

    number: int
    type: str = ""


def seconds(written: str) -> int | None:
    """A time limit: MINUTES, M:S, H:M:S, D-H, D-H:M or D-H:M:S. None: no limit."""
    if written.lower() in _ENDLESS:
        return None
    matched = _TIME.fullmatch(written)
    if matched is None:
        raise ValueError(f"{written!r} is no time such as 90, 1:30:00 or 2-12")
    days, *parts = matched.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, rest = (*numbers, 0, 0)[:3]
    else:
        hours, minutes, rest = numbers if len(numbers) == 3 else [0, *numbers, 0][:3]
    total = ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest
    # sbatch takes a limit of no time at all for none, however it is written.
    return total or None


def memory(written: str) -> int:
    """Bytes; megabytes where no unit is said, and every unit is a power of 1024."""
    matched = re.fullmatch(r"(\d+)([KMGT]?)B?", written, re.IGNORECASE)
    if matched is None:
        raise ValueError(f"{written!r} is no amount of memory such as 4000, 64G or 1T")
    return int(matched[1]) * _MEMORY_UNITS[matched[2].upper()]


def gpus(written: str) -> GpuRequest:
    """`[TYPE:]NUMBER`, as --gpus and its kin have it."""
    kind, _, number = written.rpartition(":")
    return GpuRequest(count(number), kind)


def gres(written: str) -> GpuRequest | None:
    """The GPUs of a list of generic resources, `gpu[:TYPE][:NUMBER]`; None where there are none in it."""
    found = [part for part in written.split(",") if part.partition(":")[0] == "gpu"]
    if len(found) > 1:
        raise ValueError(f"{written!r} asks for GPUs of several types: a task has one type")
    if not found:
        return None
    _, *rest = found[0].split(":")
    match rest:
        case []:
            return GpuRequest(1)
        case [number] if number.isdecimal():
            return GpuRequest(int(number))
        case [kind]:
            return GpuRequest(1, kind)
        case [kind, number]:
            return GpuRequest(count(number), kind)
        case _:
            raise ValueError(f"{written!r} is not like gpu:2 or gpu:TYPE:2")


SIGNALS: Final = ("SIGUSR1", "SIGUSR2", "SIGTERM", "SIGINT", "SIGHUP")
"""Those that a job can name."""

_SIGNAL = re.compile(r"((?:[RB]+:)?)(\w+)(?:@(\d+))?")
_SIGNAL_BEFORE_S = 60


class Warned(NamedTuple):
    """So many seconds before the limit; `to_script`: the signal is for the script itself, not for the steps that it starts."""

    before_s: int
    signal: str
    to_script: bool


def seconds_from_now(written: str) -> int | None:
    """`now+6hours`, in seconds where no unit is said; None for a time, or for midnight, noon and their like."""
    if not written.startswith("now"):
        return None
    match = _FROM_NOW.fullmatch(written)
    if match is None or not int(match[1]):
        raise ValueError(f"{written!r} is not now+COUNT[UNIT], such as now+6hours")
    return int(match[1]) * next((s for unit, s in _UNITS_S.items() if unit.startswith(match[2] or "second")), 1)


_UNITS_S = {"seconds": 1, "minutes": 60, "hours": 3_600, "days": 86_400, "weeks": 604_800}
_FROM_NOW = re.compile(r"now\+(\d{1,9})(seconds?|minutes?|hours?|days?|weeks?)?")


def warning_signal(written: str) -> Warned:
    """`[{R|B}:]SIGNAL[@SECONDS]`, the signal by its name or number; a minute before the limit where no time is said."""
    matched = _SIGNAL.fullmatch(written)
    if matched is None:
        raise ValueError(f"{written!r} is not like USR1@300 or B:USR1@300")
    options, called, before = matched.groups()
    found = [f"SIG{called.upper().removeprefix('SIG')}"]
    if called.isdecimal():
        found = [known.name for known in signal.Signals if known.value == int(called)]
    if not found or found[0] not in SIGNALS:
        raise ValueError(f"{called!r} is none of the signals that a job can be warned by: {', '.join(SIGNALS)}")
    return Warned(count(before) if before else _SIGNAL_BEFORE_S, found[0], "B" in options)


def count(written: str) -> int:
    """A number of at least 1."""
    if not written.isdecimal() or int(written) < 1:
        raise ValueError(f"{written!r} is no number of at least 1")
    return int(written)


def dependencies(written: str) -> list[dict[str, Any]]:
    """`afterok:NAME:NAME,afterany:NAME`, all of which must hold; as a job's `dependsOn`."""
    if "?" in written:
        raise ValueError(f"{written!r}: a job waits for all it depends on; for one of several it can't (?)")
    found = []
    for part in written.split(","):
        condition, *names = part.split(":")
        if condition not in _CONDITIONS or not all(names) or not names:
            raise ValueError(f"{part!r} is not like {' or '.join(f'{each}:NAME' for each in _CONDITIONS)}")
        found += [{"job": name, "condition": condition} for name in names]
    return found
