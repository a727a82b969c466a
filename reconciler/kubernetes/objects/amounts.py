"""Quantities as Kubernetes writes them (`250m`, `1.5Gi`, `2e3`), exactly; requests round up, capacities down.

The grammar is that of k8s.io/apimachinery/pkg/api/resource (Quantity).
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from functools import lru_cache

from reconciler.kubernetes.objects.wire import Amount

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
# Digits are bounded: no pod may make this process compute 1e999999999.
_WRITTEN = re.compile(
    r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40}))(?:[eE]([+-]?\d{1,2})|(n|u|m|k|[KMGTPE]i|[MGTPE]))?"
)


@lru_cache(maxsize=8192)
def amount(written: Amount) -> Fraction:
    """The number; raises ValueError where it is none."""
    match = _WRITTEN.fullmatch(str(written))
    if not match:
        raise ValueError(f"expected a quantity such as 8, 500m or 64Gi, got {written!r}")
    number, exponent, suffix = match.groups()
    if suffix in _BINARY:
        return Fraction(number) * (1 << _BINARY[suffix])
    power = int(exponent) if exponent else _DECIMAL[suffix or ""]
    return Fraction(number) * Fraction(f"1e{power}")


def up(number: Fraction, unit: int = 1) -> int:
    """In so many units of one, rounded up: what is asked for is never taken for less."""
    return math.ceil(number * unit)


def down(number: Fraction, unit: int = 1) -> int:
    """In so many units of one, rounded down: what there is is never taken for more."""
    return math.floor(number * unit)
