"""Quantities as people write them (`64Gi`, `5m`, `500m`, RFC 3339) and as integers that add up exactly.

Each type is an `int` in one fixed unit, so that comparisons and sums need no conversion and no float ever
decides a placement. `parse` reads what YAML and JSON hold; `str` writes the shortest form that reads back equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Self, cast

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_MEMORY = re.compile(r"(\d{1,18})(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?")
_CPU = re.compile(r"(\d{1,18})m")
_SECOND_MS = 1_000
_GPUS_MAX = 1e9
MILLI_PER_GPU = 1_000
_DURATION_UNITS_MS = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(
    r"(?:(\d{1,15})w)?(?:(\d{1,15})d)?(?:(\d{1,15})h)?(?:(\d{1,15})m)?(?:(\d{1,15})s)?(?:(\d{1,15})ms)?"
)
_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|z|[+-]\d\d:\d\d)",
)


class Quantity(int):
    """An integer in one unit, written with that unit; subclasses say which."""

    expected: ClassVar[str] = ""

    @classmethod
    def parse(cls, written: object) -> Self:
        """Read a value from YAML or JSON; raises ValueError that names what was expected."""
        value = cls._read(written)
        if value is None:
            raise ValueError(f"expected {cls.expected}, got {written!r}")
        return cls(value)

    @classmethod
    def _read(cls, written: object) -> int | None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"


class Memory(Quantity):
    """Bytes, written with binary (`64Gi`) or decimal (`64G`) suffixes as Kubernetes writes them."""

    expected = "memory such as 64Gi, 512Mi or 2T"

    @classmethod
    def _read(cls, written: object) -> int | None:
        if isinstance(written, int) and not isinstance(written, bool):
            return int(written) if written >= 0 else None
        match = _MEMORY.fullmatch(written) if isinstance(written, str) else None
        return int(match[1]) * (_BINARY | _DECIMAL)[match[2] or ""] if match else None

    def __str__(self) -> str:
        return _with_largest_unit(int(self), _BINARY)


class Cpu(Quantity):
    """Thousandths of a CPU core, written in cores (`96`, `0.5`) or in milli-cores (`500m`)."""

    expected = "CPU cores such as 96, 0.5 or 500m"

    @classmethod
    def _read(cls, written: object) -> int | None:
        if isinstance(written, int) and not isinstance(written, bool):
            return written * 1000 if written >= 0 else None
        if isinstance(written, float):
            # 1.001 * 1000 is 1000.9999999999999; dividing tells whether three decimals were meant.
            milli = round(written * 1000) if 0 <= written < 1e9 else -1
            return milli if milli / 1000 == written else None
        if not isinstance(written, str):
            return None
        match = _CPU.fullmatch(written)
        if match:
            return int(match[1])
        return int(written) * 1000 if written.isdecimal() and len(written) <= 15 else None

    def __str__(self) -> str:
        cores, rest = divmod(int(self), 1000)
        return f"{int(self)}m" if rest else str(cores)


class MilliGpu(Quantity):
    """Thousandths of a GPU, written in GPUs with at most three decimals (`8`, `0.5`); in JSON a number of GPUs."""

    expected = "GPUs such as 8 or 0.5, with at most three decimals"

    @classmethod
    def _read(cls, written: object) -> int | None:
        if isinstance(written, bool) or not isinstance(written, int | float) or not 0 <= written < _GPUS_MAX:
            return None
        milli = round(written * MILLI_PER_GPU)
        return milli if milli / MILLI_PER_GPU == written else None

    @classmethod
    def gpus(cls, count: int) -> Self:
        """So many whole GPUs."""
        return cls(count * MILLI_PER_GPU)

    @property
    def number(self) -> int | float:
        """In GPUs: whole where it is whole."""
        whole, rest = divmod(int(self), MILLI_PER_GPU)
        return int(self) / MILLI_PER_GPU if rest else whole

    def __str__(self) -> str:
        return str(self.number)


def whole_gpus(milli: int) -> int:
    """The whole GPUs that it takes to hold so much: rounded up."""
    return -(-milli // MILLI_PER_GPU)


class Duration(Quantity):
    """Milliseconds, written as `90s`, `1h30m`, `72h` or `7d`."""

    expected = "a duration such as 30s, 5m, 72h or 1h30m"

    @classmethod
    def _read(cls, written: object) -> int | None:
        match = _DURATION.fullmatch(written) if isinstance(written, str) and written else None
        if not match:
            return None
        return sum(
            int(count or 0) * unit for count, unit in zip(match.groups(), _DURATION_UNITS_MS.values(), strict=True)
        )

    @property
    def seconds(self) -> float:
        """The same span in seconds."""
        return int(self) / _SECOND_MS

    def __str__(self) -> str:
        """One unit where it divides, as people write it (`72h`, `90s`); hours and below, so that 72h stays 72h."""
        return _with_largest_unit(int(self), {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}) if self else "0s"


class Instant(Quantity):
    """A point in time: milliseconds since 1970-01-01T00:00:00Z, written as RFC 3339 and always in UTC."""

    expected = "a time with its zone such as 2026-11-20T08:00:00Z"

    @classmethod
    def _read(cls, written: object) -> int | None:
        match = _INSTANT.fullmatch(written) if isinstance(written, str) else None
        if not match:
            return None
        year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
        if not (
            1 <= month <= 12 and 1 <= day <= _days_in_month(year, month) and hour < 24 and minute < 60 and second < 60
        ):
            return None
        whole_s = days_from_civil(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - _offset_s(match[8])
        return whole_s * _SECOND_MS + int(f"{match[7] or '0':<03}"[:3])

    def __str__(self) -> str:
        whole_s, ms = divmod(int(self), _SECOND_MS)
        days, second = divmod(whole_s, 86_400)
        year, month, day = civil_from_days(days)
        fraction = f".{ms:03}" if ms else ""
        return f"{year:04}-{month:02}-{day:02}T{second // 3_600:02}:{second // 60 % 60:02}:{second % 60:02}{fraction}Z"

    def after(self, span: int) -> Instant:
        """This instant moved by a span in milliseconds (negative: earlier)."""
        return Instant(self + span)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").

    Written out because the core may not import `datetime`, which has a clock, `now`.
    """
    shifted = year - (month <= 2)
    era, year_of_era = divmod(shifted, 400)
    day_of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Year, month and day of a count of days since 1970-01-01; the inverse of `days_from_civil`."""
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_shifted = (5 * day_of_year + 2) // 153
    month = month_shifted + (3 if month_shifted < 10 else -9)
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * month_shifted + 2) // 5 + 1


def decode_quantity(kind: type[Any], written: object) -> Any:
    """Hook for msgspec: reads any quantity field."""
    if issubclass(kind, Quantity):
        return kind.parse(written)
    raise NotImplementedError(f"no way to read a {kind.__name__}")


@lru_cache(maxsize=2**15, typed=True)
def encode_quantity(value: object) -> str | int | float:
    """Hook for msgspec: writes any quantity as people write it.

    A snapshot has the same few thousand quantities again and again; `typed`, since a GPU and a core are equal numbers.
    """
    if isinstance(value, MilliGpu):
        return value.number
    if isinstance(value, Quantity):
        return str(value)
    raise NotImplementedError(f"no way to write a {type(value).__name__}")


def number_of(value: object) -> int:
    """Hook for msgspec: writes any quantity as the integer that it is."""
    if isinstance(value, Quantity):
        return int(value)
    raise NotImplementedError(f"no way to write a {type(value).__name__}")


def _quantity_of(kind: type[Any], number: object) -> Any:
    if issubclass(kind, Quantity) and type(number) is int:
        return kind(number)
    raise NotImplementedError(f"no way to read a {kind.__name__}")


quantity_of = cast("Callable[[type[Any], Any], Any]", lru_cache(maxsize=2**15, typed=True)(_quantity_of))
"""Hook for msgspec: reads what `number_of` wrote. The memory of 100,000 GPUs that are alike is one object."""


def _with_largest_unit(value: int, units: dict[str, int]) -> str:
    for unit, size in sorted(units.items(), key=lambda item: -item[1]):
        if value and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)


def _days_in_month(year: int, month: int) -> int:
    following = (year + month // 12, month % 12 + 1)
    return days_from_civil(*following, 1) - days_from_civil(year, month, 1)


def _offset_s(zone: str) -> int:
    if zone in "Zz":
        return 0
    sign = -1 if zone[0] == "-" else 1
    return sign * (int(zone[1:3]) * 3_600 + int(zone[4:6]) * 60)
