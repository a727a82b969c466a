"""What deploy/ starts is what this version of the program takes, and what it probes is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from hack.kubernetes.shipped import BASE, CHART, DEPLOY, base_objects, keyed
from reconciler.api.rules import RULES
from reconciler.cli.main import cli
from tests.house.tracked import ROOT

UNITS = DEPLOY / "systemd"
EXPOSURE_MAX = 20
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


def unit(name: str) -> dict[str, list[str]]:
    """What the unit states, by key."""
    stated: dict[str, list[str]] = defaultdict(list)
    for key, value in re.findall(r"^(\w+)=(.*)$", (UNITS / f"{name}.service").read_text(), re.MULTILINE):
        stated[key].append(value)
    return stated


def test_each_unit_of_systemd_has_its_limits_account_and_folders() -> None:
    plane, agent = unit("quorate"), unit("quorate-agent")
    for each, account, tasks in ((plane, "quorate", "4096"), (agent, "root", "infinity")):
        assert each["LimitNOFILE"] == ["65536"]
        assert (each["User"], each["TasksMax"]) == ([account], [tasks])
        assert (each["StateDirectory"], each["StateDirectoryMode"]) == (["quorate"], ["0700"])
    assert plane["RuntimeDirectory"] == ["quorate"]
    assert agent["KillMode"] == ["process"]  # tasks go on
    (account,) = re.findall(r"^u (\S+) - .* (\S+)$", (UNITS / "quorate.sysusers").read_text(), re.MULTILINE)
    assert account == ("quorate", "/var/lib/quorate")


def test_each_unit_of_systemd_starts_what_is_installed_as_the_page_says() -> None:
    page = (ROOT / "docs/install.md").read_text()
    for name, command in (("quorate", "run"), ("quorate-agent", "agent")):
        (started,) = unit(name)["ExecStart"]
        program, said, *arguments = started.split()
        assert said == command
        known = cli.get_command(click.Context(cli), command)
        assert known is not None
        assert set(OPTION.findall(" ".join(arguments))) <= {option for each in known.params for option in each.opts}
        (variables,) = unit(name)["EnvironmentFile"]
        for told in (program.removesuffix("/bin/quorate"), variables, f"{name}.service"):
            assert told in page


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed (apt-get install systemd)"
)
@pytest.mark.parametrize("name", ["quorate", "quorate-agent"])
def test_systemd_understands_each_unit(name: str, tmp_path: Path) -> None:
    """Every key and value; programs have to be there, so one that is takes the place of the installed one."""
    text = (UNITS / f"{name}.service").read_text()
    assert text.count("/opt/quorate/venv/bin/quorate ") == 1
    (tmp_path / f"{name}.service").write_text(text.replace("/opt/quorate/venv/bin/quorate ", "/bin/true "))
    asked = ["systemd-analyze", "verify", str(tmp_path / f"{name}.service")]
    said = subprocess.run(asked, capture_output=True, text=True)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed (apt-get install systemd)"
)
def test_the_control_plane_has_no_more_of_the_machine_than_it_needs() -> None:
    """By systemd's own weights: 0 is nothing, 100 all of it; a unit that says nothing has 96."""
    asked = [
        "systemd-analyze",
        "security",
        "--offline=yes",
        f"--threshold={EXPOSURE_MAX}",
        str(UNITS / "quorate.service"),
    ]
    said = subprocess.run(asked, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout.splitlines()[-1]
