"""The two types that Kubernetes adds to CEL for devices: quantities and semantic versions, with their functions.

As k8s.io/apiserver/pkg/cel/library (quantity.go, semverlib.go) defines them. The CEL library has no types of a caller's own, so a
value is a map with one reserved key: equal values are equal maps, and what is no value of the same type is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from reconciler.kubernetes.objects.amounts import amount

Value = dict[str, Any]

_QUANTITY, _SEMVER = "~quantity", "~semver"
_PARTS = re.compile(
    r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_LONE = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?(.*)", re.DOTALL)
"""What `semver(text, true)` makes a version of: without all three numbers, with `v` before and zeros before numbers."""


@lru_cache(maxsize=4096)
def quantity(written: str | float) -> Value:
    """A quantity as expressions have it, not to be changed; raises ValueError for what is none."""
    return _of(amount(written))


@lru_cache(maxsize=4096)
def semver(written: str, normalize: bool = False) -> Value:
    """A version as expressions have it, not to be changed; raises ValueError. What stands after `+` makes no difference."""
    if normalize and (lone := _LONE.fullmatch(written)):
        numbers = [str(int(number or 0)) for number in lone.groups()[:3]]
        written = ".".join(numbers) + (lone.group(4) or "")
    parts = _PARTS.fullmatch(written)
    if not parts:
        raise ValueError(f"expected a semantic version such as 1.2.3, got {written!r}")
    return {_SEMVER: [*(int(number) for number in parts.groups()[:3]), parts.group(4) or ""]}


def _of(number: Fraction) -> Value:
    return {_QUANTITY: str(number)}


def _number(value: Value) -> Fraction:
    if set(value) != {_QUANTITY}:
        raise ValueError("expected a quantity")
    return Fraction(value[_QUANTITY])


def _version(value: Value) -> tuple[list[int], tuple[bool, list[tuple[bool, int, str]]]]:
    """In the order of semver.org, section 11: numbers before words, a version before none of its pre-releases."""
    if set(value) != {_SEMVER}:
        raise ValueError("expected a semantic version")
    *numbers, before = value[_SEMVER]
    words = before.split(".") if before else []
    ranked = [(not word.isdecimal(), int(word) if word.isdecimal() else 0, word) for word in words]
    return numbers, (not before, ranked)


def _compare(one: Value, other: Value) -> int:
    if _SEMVER in one:
        return (_version(one) > _version(other)) - (_version(one) < _version(other))
    return (_number(one) > _number(other)) - (_number(one) < _number(other))


def _added(one: Value, other: Value | int) -> Value:
    return _of(_number(one) + (other if isinstance(other, int) else _number(other)))


def _subtracted(one: Value, other: Value | int) -> Value:
    return _of(_number(one) - (other if isinstance(other, int) else _number(other)))


def _whole(one: Value) -> int:
    number = _number(one)
    if number.denominator != 1 or not -(2**63) <= number < 2**63:
        raise ValueError("cannot convert value to integer")
    return number.numerator


def _is(made: Callable[[str], Value]) -> Callable[[str], bool]:
    def can_be_made(written: str) -> bool:
        try:
            made(written)
        except ValueError:
            return False
        return True

    return can_be_made


def _part(index: int) -> Callable[[Value], int]:
    def part(value: Value) -> int:
        return _version(value)[0][index]

    return part


def declarations() -> list[cel.FunctionDecl]:
    """All functions of both types, for the environment of expressions."""
    value, text, whole, yes = cel.Type.Map(cel.Type.DYN, cel.Type.DYN), cel.Type.STRING, cel.Type.INT, cel.Type.BOOL

    def made(name: str, *overloads: tuple[Any, list[cel.Type], Callable[..., Any]]) -> cel.FunctionDecl:
        return cel.FunctionDecl(name, [_overload(name, False, *overload) for overload in overloads])

    def member(name: str, *overloads: tuple[Any, list[cel.Type], Callable[..., Any]]) -> cel.FunctionDecl:
        return cel.FunctionDecl(name, [_overload(name, True, *overload) for overload in overloads])

    return [
        made("quantity", (value, [text], quantity)),
        made("isQuantity", (yes, [text], _is(quantity))),
        made("semver", (value, [text], semver), (value, [text, yes], semver)),
        made("isSemver", (yes, [text], _is(semver))),
        member("compareTo", (whole, [value, value], _compare)),
        member("isLessThan", (yes, [value, value], lambda one, other: _compare(one, other) < 0)),
        member("isGreaterThan", (yes, [value, value], lambda one, other: _compare(one, other) > 0)),
        member("sign", (whole, [value], lambda one: _compare(one, quantity(0)))),
        member("isInteger", (yes, [value], lambda one: _number(one).denominator == 1)),
        member("asInteger", (whole, [value], _whole)),
        member("asApproximateFloat", (cel.Type.DOUBLE, [value], lambda one: float(_number(one)))),
        member("add", (value, [value, value], _added), (value, [value, whole], _added)),
        member("sub", (value, [value, value], _subtracted), (value, [value, whole], _subtracted)),
        member("major", (whole, [value], _part(0))),
        member("minor", (whole, [value], _part(1))),
        member("patch", (whole, [value], _part(2))),
    ]


def _overload(name: str, is_member: bool, returns: Any, takes: list[Any], does: Callable[..., Any]) -> cel.Overload:
    identity = "_".join([name, *(kind.name() for kind in takes)])
    return cel.Overload(identity, return_type=returns, parameters=takes, is_member=is_member, impl=does)
