"""Kinds of objects that say something of gangs: where the server keeps them, as what they are read, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from reconciler.kubernetes.objects.resource import Resource
from reconciler.kubernetes.objects.wire import Meta, Wire, read

S = TypeVar("S")
M = TypeVar("M")


class SpecObject(Wire, Generic[S], frozen=True):
    """An object, of whose `spec` only the fields that matter are kept."""

    metadata: Meta
    spec: S | None = None


@dataclass(frozen=True, slots=True)
class ObjectKind(Generic[S, M]):
    """`resources`: under which names a server may know it, the newest first. `spec`: a Struct whose fields have defaults."""

    name: str
    resources: tuple[Resource, ...]
    spec: type[S]
    meaning: Callable[[Meta, S], M]

    @property
    def written(self) -> type[SpecObject[S]]:
        """As what an object is decoded."""
        return SpecObject[self.spec]  # type: ignore[name-defined]  # known at run time, which is when objects are decoded

    def read(self, written: SpecObject[S]) -> M:
        """What an object says."""
        return self.meaning(written.metadata, self.spec() if written.spec is None else written.spec)


class _Named(Wire, frozen=True):
    api_version: str
    kind: str


def read_as(kinds: tuple[ObjectKind[Any, M], ...], sent: bytes | Mapping[str, Any], wanted: str) -> M:
    """An object that says its kind itself; raises msgspec.ValidationError, and ValueError for what is none of `kinds`."""
    said = read(sent, _Named)
    for kind in kinds:
        if kind.name == said.kind and any(resource.version == said.api_version for resource in kind.resources):
            return kind.read(read(sent, kind.written))
    known = ", ".join(sorted({f"{kind.name} of {resource.version}" for kind in kinds for resource in kind.resources}))
    raise ValueError(f"{said.kind} of {said.api_version} is no {wanted}: those are {known}")
