"""Which options of `quorate run` go together on Kubernetes, and whose pods they let it look at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from reconciler.cli.kubernetes_options import kubernetes_options, kubernetes_settings
from reconciler.kubernetes.objects.pod_ownership import INCUMBENTS, PodOwnership

USUAL: dict[str, Any] = {
    "kubernetes": True,
    "observe": False,
    "observed_schedulers": (),
    "observed_queue": "",
    "mirror_policy": False,
    "kubeconfig": (),
    "context": None,
    "namespace": "quorate-system",
    "lease": "quorate",
    "identity": None,
    "qps": 500.0,
    "burst": 1000,
    "mig_configs": "gpu-operator/default-mig-parted-config",
}


@pytest.mark.parametrize(
    ("said", "whose"),
    [
        ({}, None),
        ({"observe": True}, PodOwnership(frozenset(INCUMBENTS))),
        ({"observe": True, "observed_queue": "all"}, PodOwnership(frozenset(INCUMBENTS), "all")),
        ({"observe": True, "observed_schedulers": ("mine", "volcano")}, PodOwnership(frozenset({"mine", "volcano"}))),
    ],
)
def test_whose_pods_are_looked_at(said: dict[str, Any], whose: PodOwnership | None) -> None:
    found = kubernetes_settings(**(USUAL | said))
    assert found is not None
    assert found.observed == whose


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"observed_schedulers": ("mine",)}, "are for --observe"),
        ({"observed_queue": "all"}, "are for --observe"),
        ({"kubernetes": False, "observed_queue": "all"}, "are for --observe"),
        ({"kubernetes": False, "observe": True}, "is for --kubernetes or --slurm"),
        ({"observe": True, "mirror_policy": True}, "--observe writes nothing"),
        ({"kubernetes": False, "kubeconfig": (Path("a"),)}, "are for --kubernetes"),
        ({"kubernetes": False, "context": "far"}, "--context, .* are for --kubernetes"),
    ],
)
def test_what_is_refused(said: dict[str, Any], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        kubernetes_settings(**(USUAL | said))


def test_jobs_of_this_machine_need_none_of_it() -> None:
    assert kubernetes_settings(**(USUAL | {"kubernetes": False})) is None


@click.command()
@kubernetes_options
def asked(**options: Any) -> None:
    found = kubernetes_settings(**options)
    assert found is not None
    click.echo(f"{':'.join(path.name for path in found.kubeconfig)} {found.context}")


@pytest.mark.parametrize(
    ("named", "context", "read"),
    [((), "far", " far"), (("a",), None, "a None"), (("a", "b"), "far", "a:b far"), (("", "b", ""), None, "b None")],
)
def test_several_kubeconfigs_are_named_as_in_the_environment(
    tmp_path: Path, named: tuple[str, ...], context: str | None, read: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    files = os.pathsep.join(str(tmp_path / name) if name else "" for name in named)
    said = [*(("--kubeconfig", files) if named else ()), *(("--context", context) if context else ())]
    done = CliRunner().invoke(asked, ["--kubernetes", *said])
    assert (done.exit_code, done.output) == (0, f"{read}\n")


def test_a_file_whose_name_has_a_colon_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "system:scheduler.kubeconfig").touch()
    done = CliRunner().invoke(asked, ["--kubernetes", "--kubeconfig", str(tmp_path / "system:scheduler.kubeconfig")])
    assert (done.exit_code, done.output) == (0, "system:scheduler.kubeconfig None\n")


@pytest.mark.parametrize(
    ("named", "message"), [("gone", "'gone' does not exist"), ("", "names no file"), (":", "names no file")]
)
def test_a_kubeconfig_that_is_named_has_to_be_there(named: str, message: str) -> None:
    """Of those that KUBECONFIG names, kubectl leaves out what is not there; who asks for one by name gets no other."""
    done = CliRunner().invoke(asked, ["--kubernetes", "--kubeconfig", named])
    assert done.exit_code == 2
    assert message in done.output
