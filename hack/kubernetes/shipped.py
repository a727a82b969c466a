"""What deploy/ installs, as objects: the files of the Kustomize base as they are, and what kustomize and helm make of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from hack.kubernetes.components import found, place
from reconciler.documents.guard import LOADER
from reconciler.kubernetes.objects.resource import Resource

DEPLOY = Path(__file__).parents[2] / "deploy"
BASE = DEPLOY / "kubernetes"
CHART = DEPLOY / "helm" / "quorate"
NAMESPACE = "quorate-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:quorate"
"""As whom Quorate asks the API server."""
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
"""What every service account of that namespace is in."""

KUSTOMIZE, HELM = "kustomize", "helm"
LIMIT_S = 60
PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
}


def base_objects(namespace: str = NAMESPACE) -> tuple[dict[str, Any], ...]:
    """The objects that deploy/kubernetes/kustomization.yaml lists, in its order: its files need no kustomize to be read.

    `namespace`: another than theirs, put in its place everywhere, as docs/kubernetes-install.md has it done.
    """
    (listed,) = objects_in((BASE / "kustomization.yaml").read_text())
    texts = [(BASE / name).read_text().replace(NAMESPACE, namespace) for name in listed["resources"]]
    return tuple(each for text in texts for each in objects_in(text))


def kustomized(folder: Path) -> tuple[dict[str, Any], ...]:
    """What `kustomize build` makes of a folder. Raises ComponentMissingError, and CalledProcessError with what it said."""
    return objects_in(_output([_program(KUSTOMIZE), "build", str(folder)]))


def charted(
    values: Mapping[str, object],
    namespace: str = NAMESPACE,
    release: str = "quorate",
    serves: Iterable[str] = (),
    chart: Path = CHART,
) -> tuple[dict[str, Any], ...]:
    """What `helm template` makes of the chart, for an API server that serves these kinds, such as apps/v1/Deployment, too.

    `chart`: the folder, or its archive. Raises ComponentMissingError, and CalledProcessError with what it said.
    """
    served = [f"--api-versions={kind}" for kind in serves]
    return objects_in(_output([_program(HELM), "template", *_release(values, namespace, release, chart), *served]))


def notes(values: Mapping[str, object], namespace: str = NAMESPACE, release: str = "quorate") -> str:
    """What `helm install` says once it is done; it installs nothing. Raises as `charted` does."""
    dry = [_program(HELM), "install", "--dry-run=client", *_release(values, namespace, release)]
    return _output(dry).partition("\nNOTES:\n")[2]


def installed_by_helm(kubeconfig: Path, values: Mapping[str, object], namespace: str, release: str = "quorate") -> None:
    """`helm install`, in truth, with the namespace made. Raises as `charted` does."""
    where = ["--kubeconfig", str(kubeconfig), "--create-namespace"]
    _output([_program(HELM), "install", *_release(values, namespace, release), *where])


def _release(values: Mapping[str, object], namespace: str, release: str, chart: Path = CHART) -> list[str]:
    arguments = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    return [release, str(chart), "--namespace", namespace, *arguments]


def objects_in(text: str) -> tuple[dict[str, Any], ...]:
    """The objects of a stream of YAML documents."""
    return tuple(each for each in yaml.load_all(text, LOADER) if each)


def keyed(objects: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """Objects by kind, namespace and name. Raises ValueError where two have the same."""
    by_key: dict[tuple[str, str, str], dict[str, Any]] = {}
    for each in objects:
        key = (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        if key in by_key:
            raise ValueError(f"{' '.join(key)} is there twice")
        by_key[key] = each
    return by_key


def path_of(written: Mapping[str, Any], **parameters: str) -> str:
    """Where such an object is made; a field that the server does not know is an error, not a warning."""
    kind = written["kind"]
    resource = Resource(written["apiVersion"], PLURALS.get(kind, f"{kind.lower()}s"))
    query = urlencode({"fieldValidation": "Strict", **parameters})
    return f"{resource.path(written['metadata'].get('namespace', ''))}?{query}"


def _program(name: str) -> str:
    where = place()
    on_path = None if where.has(name) else shutil.which(name)
    return on_path or str(found(where, (name,)).path(name))


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout
