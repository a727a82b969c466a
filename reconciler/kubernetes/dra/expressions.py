"""Which devices a CEL expression selects: compiled once, evaluated once for all devices that look the same to it.

The environment is that of k8s.io/dynamic-resource-allocation/cel (compile.go), which API servers check expressions against before
they store them. Left out: `allowMultipleAllocations`, attributes with lists, and the libraries for URLs, addresses and formats.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, NamedTuple

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from reconciler.kubernetes.dra.versions import declarations, quantity, semver
from reconciler.kubernetes.dra.wire import Attribute, CounterValue

_LITERAL = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\''
_MAPS = re.compile(rf"({_LITERAL})|\bdevice\s*\.\s*(attributes|capacity)(?=\s*\[)")
"""Strings, which stay as they are, and the maps that are indexed."""
_MENTIONED = re.compile(
    rf"""({_LITERAL})|\bdevice\b
    (?:\s*\.\s*(?P<driver>driver)\b
      |\s*\.\s*(?P<map>attributes|capacity)\s*\[\s*\??\s*["'](?P<domain>[a-z0-9.-]+)["']\s*\](?:\s*\.\s*\??\s*(?P<name>[A-Za-z_]\w*)(?!\w*\s*\())?
    )?""",
    re.VERBOSE,
)
"""Strings, and what of `device` is looked at; nothing of the kind: all of it."""
_UNCERTAIN = ("//", "\\", '"""', "'''")
"""Comments, escapes and long strings: where the strings of an expression end is not looked for any further."""
_FILLED = "~"
"""Under these names an expression finds the maps with an empty one in each domain that it names, as in Kubernetes."""


COMPILED_MAX = 1_000
"""Expressions that are remembered."""


class SelectorError(Exception):
    """An expression can't be compiled, or fails on a device. The author of the claim or the class must act."""


class DeviceTraits(NamedTuple):
    """A device as expressions see it. `attributes`, `capacity`: by domain, then by name."""

    driver: str
    attributes: dict[str, dict[str, Any]]
    capacity: dict[str, dict[str, Any]]


def look_of(driver: str, attributes: dict[str, Attribute], capacity: dict[str, CounterValue]) -> DeviceTraits:
    """As expressions see it: a name without a domain is of the driver's. Raises ValueError for what can't be read."""
    seen: dict[str, dict[str, Any]] = {}
    for name, attribute in attributes.items():
        value = _value(attribute)
        if value is not None:
            domain, short = qualified_name(name, driver)
            seen.setdefault(domain, {})[short] = value
    sizes: dict[str, dict[str, Any]] = {}
    for name, there in capacity.items():
        domain, short = qualified_name(name, driver)
        sizes.setdefault(domain, {})[short] = quantity(there.value)
    return DeviceTraits(driver, seen, sizes)


@lru_cache(maxsize=4096)
def qualified_name(name: str, driver: str) -> tuple[str, str]:
    """Domain and name of an attribute or capacity."""
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)


class Expression:
    """One expression. Raises SelectorError where it can't be compiled."""

    def __init__(self, written: str) -> None:
        self._mentions = _mentions(written)
        self._domains = _strings(written)
        self._known: dict[Hashable, bool | str] = {}
        try:
            self._program = _environment().compile(_with_filled_maps(written))
        except RuntimeError as wrong:
            raise SelectorError(_shown(str(wrong))) from wrong
        kind = self._program.return_type().name()
        if kind not in ("bool", "BOOL", "dyn", "DYN"):
            raise SelectorError(f"has to be true or false, and is {kind}")

    def selects(self, device: DeviceTraits) -> bool:
        """Whether the device is one of those that are meant. Raises SelectorError where the expression fails on it."""
        key = self._key(device)
        if key not in self._known:
            self._known[key] = self._evaluated(device)
        found = self._known[key]
        if isinstance(found, str):
            raise SelectorError(found)
        return found

    @property
    def evaluated(self) -> int:
        """How many devices that look different have been asked about."""
        return len(self._known)

    def _key(self, device: DeviceTraits) -> Hashable:
        if self._mentions is None:
            return repr(device)
        found: list[Hashable] = []
        for kind, domain, name in self._mentions:
            if kind == "driver":
                found.append(device.driver)
                continue
            there = (device.attributes if kind == "attributes" else device.capacity).get(domain, {})
            value = there.get(name) if name else there
            found.append(repr(value) if isinstance(value, dict) else (type(value), value))
        return tuple(found)

    def _evaluated(self, device: DeviceTraits) -> bool | str:
        empty: dict[str, dict[str, Any]] = {domain: {} for domain in self._domains}
        seen = {
            "driver": device.driver,
            "attributes": device.attributes,
            "capacity": device.capacity,
            f"{_FILLED}attributes": {**empty, **device.attributes},
            f"{_FILLED}capacity": {**empty, **device.capacity},
        }
        try:
            value = self._program.eval(data={"device": seen})
        except RuntimeError as wrong:  # it takes too long, for one
            return _shown(str(wrong))
        found = value.value()
        if value.type() == cel.Type.BOOL:
            return bool(found)
        return _shown(str(found)) if value.type() == cel.Type.ERROR else f"has to be true or false, and is {found!r}"


class Expressions:
    """All that have been compiled, by what is written."""

    def __init__(self) -> None:
        self._compiled: dict[str, Expression | SelectorError] = {}

    def get(self, written: str) -> Expression:
        """Raises SelectorError where it can't be compiled."""
        if written not in self._compiled:
            if len(self._compiled) >= COMPILED_MAX:
                self._compiled.clear()
            try:
                self._compiled[written] = Expression(written)
            except SelectorError as wrong:
                self._compiled[written] = wrong
        found = self._compiled[written]
        if isinstance(found, SelectorError):
            raise found
        return found


_environments: list[cel.Env] = []


def _environment() -> cel.Env:
    if not _environments:
        extensions = [ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()]
        _environments.append(
            cel.NewEnv(variables={"device": cel.Type.DYN}, extensions=extensions, functions=declarations())
        )
    return _environments[0]


def _value(attribute: Attribute) -> bool | int | str | dict[str, Any] | None:
    if attribute.version_value is not None:
        return semver(attribute.version_value)
    for value in (attribute.bool_value, attribute.int_value, attribute.string_value):
        if value is not None:
            return value
    return None


def _with_filled_maps(written: str) -> str:
    return _MAPS.sub(lambda found: found.group(1) or f'device["{_FILLED}{found.group(2)}"]', written)


def _strings(written: str) -> frozenset[str]:
    return frozenset(found.group()[1:-1] for found in re.finditer(_LITERAL, written))


def _mentions(written: str) -> tuple[tuple[str, str, str], ...] | None:
    """(what, domain, name) of all that an expression looks at, name "" for a whole domain; None: it may look at everything."""
    if any(mark in written for mark in _UNCERTAIN):
        return None
    found: set[tuple[str, str, str]] = set()
    for match in _MENTIONED.finditer(written):
        if match.group(1):
            continue
        if match["driver"]:
            found.add(("driver", "", ""))
        elif match["map"]:
            found.add((match["map"], match["domain"], match["name"] or ""))
        else:
            return None
    return tuple(sorted(found))


def _shown(error: str) -> str:
    """The library's message without the name it gives us and without its status codes."""
    first = error.removeprefix("INVALID_ARGUMENT: ").split("\n")[0]
    return first.removeprefix("ERROR: ").replace(f'"{_FILLED}', '"').strip()
