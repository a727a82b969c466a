"""What deploy/observability ships fits the program: expressions name its metrics, monitors its pods, and rules do what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from hack.kubernetes.shipped import DEPLOY, base_objects
from hack.observability.dashboard import SHIPPED, dashboard_json
from hack.observability.panels import ROWS
from tests.house.test_metrics import table

OBSERVABILITY: Final = DEPLOY / "observability"
RULES: Final = OBSERVABILITY / "rules.yaml"
METRIC: Final = re.compile(r"\bquorate[_:][a-z_:0-9]+")
PROMTOOL: Final = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian's prometheus has it)")

WORD: Final = {"type": "string"}
SOURCE: Final = {"type": "object", "properties": {"type": {"const": "prometheus"}, "uid": WORD}, "required": ["uid"]}
GRID: Final = {
    "type": "object",
    "properties": {
        "h": {"type": "integer", "minimum": 1},
        "w": {"type": "integer", "minimum": 1, "maximum": 24},
        "x": {"type": "integer", "minimum": 0, "maximum": 23},
        "y": {"type": "integer", "minimum": 0},
    },
    "required": ["h", "w", "x", "y"],
    "additionalProperties": False,
}
TARGET: Final = {
    "type": "object",
    "properties": {
        "datasource": SOURCE,
        "expr": {"type": "string", "minLength": 1},
        "legendFormat": WORD,
        "refId": {"type": "string", "pattern": "^[A-Z]$"},
    },
    "required": ["expr", "refId", "datasource"],
    "additionalProperties": False,
}
SCHEMA: Final = {
    "type": "object",
    "properties": {
        "uid": {"type": "string", "pattern": "^[a-z0-9-]{1,40}$"},
        "title": {"type": "string", "minLength": 1},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "panels": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer", "minimum": 1},
                    "type": {"enum": ["row", "stat", "timeseries"]},
                    "title": {"type": "string", "minLength": 1},
                    "gridPos": GRID,
                    "targets": {"type": "array", "items": TARGET, "minItems": 1},
                },
                "required": ["id", "type", "title", "gridPos"],
                "if": {"properties": {"type": {"const": "row"}}},
                "else": {"required": ["targets", "description", "fieldConfig", "datasource"]},
            },
        },
        "templating": {
            "type": "object",
            "properties": {
                "list": {"type": "array", "items": {"type": "object", "required": ["name", "type", "query"]}}
            },
        },
    },
    "required": ["uid", "title", "schemaVersion", "panels", "templating", "time"],
}
"""What Grafana 11 takes, as far as this dashboard uses it."""


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def shown() -> Iterator[str]:
    """Every expression of the dashboard, with what a reader chooses filled in."""
    for row in ROWS:
        for panel in row.panels:
            for curve in panel.curves:
                yield curve.expr.replace("$__rate_interval", "5m").replace("$queue", ".*").replace("$gpu_type", ".*")


def known_names() -> set[str]:
    """Series of the program's metrics, and of recording rules."""
    found = {rule["record"] for rule in rules() if "record" in rule}
    for name, row in table().items():
        found |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if row.type == "histogram" else {name}
    return found


def test_the_dashboard_is_what_is_made_of_its_source() -> None:
    assert SHIPPED.read_text() == dashboard_json(), "python -m hack.observability.dashboard"


def test_the_dashboard_is_one_for_grafana() -> None:
    made = json.loads(SHIPPED.read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(made)
    numbers = [panel["id"] for panel in made["panels"]]
    assert len(set(numbers)) == len(numbers)
    for one, other in combinations([panel["gridPos"] for panel in made["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"], (one, other)


def test_expressions_name_only_metrics_that_there_are() -> None:
    used = {name for expr in (*shown(), *(rule["expr"] for rule in rules())) for name in METRIC.findall(expr)}
    assert used - known_names() == set()


def test_each_rule_has_a_test_and_says_what_it_is() -> None:
    tests = (OBSERVABILITY / "rules.test.yaml").read_text()
    alerts = [rule for rule in rules() if "alert" in rule]
    assert [rule["alert"] for rule in alerts if rule["alert"] not in tests] == []
    assert [rule["alert"] for rule in alerts if not rule["annotations"].get("summary")] == []
    assert {rule["labels"]["severity"] for rule in alerts} <= {"critical", "warning", "info"}


def test_monitors_select_what_is_shipped() -> None:
    objects = {each["kind"]: each for each in base_objects()}
    pod = objects["Deployment"]["spec"]["template"]
    ports = {port["name"] for container in pod["spec"]["containers"] for port in container["ports"]}
    for name, where in (("podmonitor", "podMetricsEndpoints"), ("servicemonitor", "endpoints")):
        spec = yaml.safe_load((OBSERVABILITY / f"{name}.yaml").read_text())["spec"]
        assert spec["namespaceSelector"]["matchNames"] == [objects["Deployment"]["metadata"]["namespace"]]
        of = pod if name == "podmonitor" else objects["Service"]
        assert spec["selector"]["matchLabels"].items() <= of["metadata"]["labels"].items()
        assert {each["port"] for each in spec[where]} <= ports
        assert {each["path"] for each in spec[where]} == {"/metrics"}
    assert {port["name"] for port in objects["Service"]["spec"]["ports"]} <= ports


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, check=False)


@needs_promtool
def test_rules_do_what_they_say() -> None:
    done = promtool("test", "rules", OBSERVABILITY / "rules.test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_each_expression_of_the_dashboard_can_be_read(tmp_path: Path) -> None:
    asked = [{"record": f"shown:{number}", "expr": expr} for number, expr in enumerate(shown())]
    (tmp_path / "shown.yaml").write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": asked}]}))
    done = promtool("check", "rules", tmp_path / "shown.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
