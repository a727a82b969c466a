"""The hooks that this project offers to pre-commit are commands that it has."""

from __future__ import annotations

import re
from pathlib import Path

import click
import yaml

from reconciler.cli.main import cli

ROOT = Path(__file__).parents[2]


def test_the_hooks_are_commands_and_look_at_policy() -> None:
    hooks = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}
    assert set(hooks) == {"quorate-validate", "quorate-test"}
    for hook in hooks.values():
        program, command = hook["entry"].split()
        assert program == "quorate"
        assert cli.get_command(click.Context(cli), command) is not None
        assert (hook["language"], hook["pass_filenames"]) == ("python", False)
        assert re.search(hook["files"], "policies/queues/team-a.yaml")
        assert re.search(hook["files"], "clusters/eu-1/policies/team-a.yaml")
        assert not re.search(hook["files"], "docs/policies/README.md")


def test_a_new_repository_has_the_hook_that_is_offered() -> None:
    starter = yaml.safe_load((ROOT / "reconciler/cli/starter/.pre-commit-config.yaml").read_text())
    offered = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    by_id = {hook["id"]: hook for hook in offered}
    for hook in starter["repos"][0]["hooks"]:
        same = by_id[hook["id"]]
        assert hook["language"] == "system"  # the one that is installed: a bare name may be anybody's
        alike = same.keys() - {"description", "language"}
        assert {key: hook[key] for key in alike} == {key: same[key] for key in alike}
