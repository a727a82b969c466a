"""What an unquoted scalar means: the core schema of YAML 1.2 (section 10.3.2), so `NO` is text and `010` is ten."""

from __future__ import annotations

import math
import re

_NULL = {"", "~", "null", "Null", "NULL"}
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

# 18 digits fit 64 bits; Python itself refuses to read more than 4,300.
_DIGITS_MAX = 18


class ScalarError(ValueError):
    """The scalar is a number that no field can hold."""


def plain_value(text: str) -> str | int | float | bool | None:
    """The value of an unquoted scalar; raises ScalarError."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    for pattern, base in ((_INTEGER, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            return _integer(text, base)
    if _NOT_FINITE.fullmatch(text):
        raise ScalarError(f"{text} is not a number that can be used")
    if _FLOAT.fullmatch(text):
        return _float(text)
    return text


def _integer(text: str, base: int) -> int:
    if len(text) > _DIGITS_MAX + 2:
        raise ScalarError(f"a number of {len(text)} digits is too long")
    return int(text, base)


def _float(text: str) -> float:
    value = float(text) if len(text) <= 400 else math.inf
    if not math.isfinite(value):
        raise ScalarError(f"the number {text[:20]} is too large")
    return value
