"""The values of the chart, as far as they can be judged without helm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.house.tracked import ROOT

CHART = ROOT / "deploy" / "helm" / "quorate"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
FREE = {"global"}
"""Helm's own, which has no default here."""


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """A part of the schema with the definition that it refers to."""
    referred = SCHEMA["definitions"][part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else {}
    return {**referred, **part}


def described(part: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value that has a name of its own, with what the schema says of it."""
    for name, each in part.get("properties", {}).items():
        if each is not False:
            whole = resolved(each)
            yield f"{path}{name}", whole
            yield from described(whole, f"{path}{name}.")


EVERY = dict(described(SCHEMA))


@pytest.mark.parametrize("path", EVERY)
def test_every_value_is_described(path: str) -> None:
    assert EVERY[path].get("description", "").endswith("."), path


@pytest.mark.parametrize("path", [path for path, part in EVERY.items() if "properties" in part])
def test_unknown_values_are_refused(path: str) -> None:
    closed = EVERY[path]["additionalProperties"]
    assert closed is False or path == "podLabels"


def test_every_value_has_a_default_that_the_schema_allows() -> None:
    for path in EVERY.keys() - FREE:
        value: Any = VALUES
        for name in path.split("."):
            assert name in value, path
            value = value[name]
    named = {**VALUES, "policies": {**VALUES["policies"], "repo": "https://git.example.com/policy.git"}}
    Draft7Validator(SCHEMA).validate(named)
    assert VALUES.keys() == SCHEMA["properties"].keys() - FREE
