"""What deploy/ starts is what this version of the program takes, and what it probes is there."""

from __future__ import annotations

import re
from typing import Any

import click
import yaml

from hack.kubernetes.shipped import BASE, CHART, DEPLOY, base_objects, keyed
from reconciler.api.rules import RULES
from reconciler.cli.main import cli

UNITS = DEPLOY / "systemd"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def options() -> set[str]:
    command = cli.get_command(click.Context(cli), "run")
    assert command is not None
    return {option for parameter in command.params for option in parameter.opts}


def container() -> dict[str, Any]:
    (deployment,) = [each for each in base_objects() if each["kind"] == "Deployment"]
    (each,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(each)


def test_every_option_is_one_of_quorate_run() -> None:
    chart = (CHART / "templates/deployment.yaml").read_text()
    (chart_arguments,) = re.findall(r"^ +args:\n((?: +-.*\n| +\{\{.*\n)+)", chart, re.MULTILINE)
    overlay = (DEPLOY / "observe/kustomization.yaml").read_text()
    given = set(OPTION.findall("\n".join([*container()["args"], chart_arguments, overlay])))
    assert given - options() == set()


def test_probes_ask_what_needs_no_token_under_any_host() -> None:
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container()[probe]["httpGet"]
        assert RULES[f"GET {asked['path']}"] == "open"
        assert asked.keys() == {"path", "port"}


def test_what_is_selected_is_what_is_started() -> None:
    objects = {kind: each for (kind, _, _), each in keyed(base_objects()).items()}
    labels = objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["Service"]["spec"]["ports"][0]["targetPort"] in ports
    assert objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert f"--listen=0.0.0.0:{ports['api']}" in container()["args"]


def test_each_file_of_the_base_is_listed_and_in_the_chart() -> None:
    (listed,) = yaml.safe_load_all((BASE / "kustomization.yaml").read_text())
    files = {path.name for path in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(listed["resources"]) == files
    named = set(re.findall(r'"base/([a-z-]+)"', (CHART / "templates/base.yaml").read_text()))
    assert files - {"namespace.yaml", "deployment.yaml"} <= {f"{name}.yaml" for name in named}


def test_the_chart_has_the_files_by_links() -> None:
    assert (CHART / "base").resolve() == BASE
    assert (CHART / "exec").resolve() == DEPLOY / "exec"


def test_each_unit_of_systemd_may_open_enough_files() -> None:
    limits = {
        path.name: re.findall(r"^LimitNOFILE=(\d+)$", path.read_text(), re.MULTILINE)
        for path in UNITS.glob("*.service")
    }
    assert limits == {"quorate.service": ["65536"], "quorate-agent.service": ["65536"]}
