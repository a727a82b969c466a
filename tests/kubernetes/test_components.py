"""Where components come from, and what is said where they can't be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.kubernetes import components
from hack.kubernetes.__main__ import main
from hack.kubernetes.components import ComponentMissingError, completed, found, kubernetes_version, place


def test_kubebuilder_assets_come_first_and_are_never_added_to(tmp_path: Path) -> None:
    where = place({"KUBEBUILDER_ASSETS": str(tmp_path), "XDG_CACHE_HOME": "elsewhere"})
    with pytest.raises(ComponentMissingError, match=r"no etcd and no kube-apiserver\. Set KUBEBUILDER_ASSETS"):
        completed(where)
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).touch(mode=0o755)
    assert completed(where).path("etcd") == tmp_path / "etcd"


def test_the_cache_lies_outside_and_changes_with_what_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = place({"XDG_CACHE_HOME": str(tmp_path)})
    assert before.folder.is_relative_to(tmp_path)
    with pytest.raises(ComponentMissingError, match="make test-kubernetes"):
        found(before)
    with pytest.raises(ComponentMissingError, match="--with kubectl`, which"):
        found(before, ("etcd", "kubectl"))
    for name in ("go.sum", "wheels.txt"):
        (tmp_path / name).write_text("another")
    monkeypatch.setattr(components, "HERE", tmp_path)
    assert place({"XDG_CACHE_HOME": str(tmp_path)}).folder != before.folder


def test_a_build_that_fails_says_what_to_install_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text('#!/bin/sh\n[ "$1" = env ] && echo go1.26.0 && exit\necho no such module >&2\nexit 1\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:/usr/bin:/bin")
    where = place({"XDG_CACHE_HOME": str(tmp_path)})
    with pytest.raises(ComponentMissingError, match=r"kube-apiserver: Go could not build it.*install Go 1\.26"):
        completed(where, ("kube-apiserver",))
    assert "no such module" in capfd.readouterr().err
    assert list(where.folder.iterdir()) == []


@pytest.mark.parametrize("module", ["", "kubectl"])
def test_all_modules_of_kubernetes_have_the_same_version(module: str) -> None:
    """They are released together, v1.X.Y and v0.X.Y."""
    staged = kubernetes_version().replace("v1.", "v0.")
    written = (components.HERE / module / "go.mod").read_text()
    assert f"k8s.io/kubernetes {kubernetes_version()}" in written
    replaced = [line for line in written.splitlines() if "=>" in line]
    assert len(replaced) > 30
    assert [line for line in replaced if not line.endswith(staged)] == []


def test_a_module_of_its_own_changes_nothing_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = place({"XDG_CACHE_HOME": str(tmp_path)})
    before = where.path("kubectl"), where.path("kube-apiserver")
    assert before[0].parent.parent == before[1].parent
    sums = components.HERE / "kubectl" / "go.sum"
    (tmp_path / "kubectl").mkdir()
    (tmp_path / "kubectl" / "go.sum").write_bytes(sums.read_bytes() + b"another")
    monkeypatch.setattr(components, "HERE", tmp_path)
    assert where.path("kubectl") != before[0]
    assert where.path("kube-apiserver") == before[1]


def test_in_a_folder_of_others_all_lie_side_by_side(tmp_path: Path) -> None:
    assert place({"KUBEBUILDER_ASSETS": str(tmp_path)}).path("kubectl") == tmp_path / "kubectl"


def test_a_name_that_is_no_component_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for others in ("helm,kubelet", "kubelet"):
        assert main(["--with", others, "--with", "kubectl"]) == 64
        assert "kubelet: not built here. There are helm, jobset, kube-controller-manager," in capsys.readouterr().err
