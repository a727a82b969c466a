"""Kubeconfigs and exec plugins for tests."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import yaml

from hack.kubernetes.certificates import Authority
from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.credentials import Credentials
from reconciler.kubernetes.client.pace import RateLimiter
from reconciler.kubernetes.objects.resource import Resource
from reconciler.model.clock import Clock, SystemClock

AUTHORITY = Authority()
V1 = "client.authentication.k8s.io/v1"
ACCOUNTS = Resource("v1", "serviceaccounts")
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def kubeconfig(
    folder: Path, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, name: str = "config"
) -> Path:
    """One context, `here`, of one cluster and user. What is None is left out."""
    shipped = {"server": "https://api.example:6443", "certificate-authority-data": encoded(AUTHORITY.pem)}
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}, {"name": "there", "context": {}}],
        "clusters": [{"name": "c", "cluster": {**shipped, **(cluster or {})}}],
        "users": [{"name": "u", "user": user if user is not None else {"token": "secret"}}],
    }
    path = folder / name
    path.write_text(yaml.safe_dump(content))
    return path


def of(cluster: Cluster, **more: Any) -> dict[str, Any]:
    """The part of a kubeconfig that leads to this cluster."""
    return {"server": cluster.server, "certificate-authority-data": encoded(cluster.authority.pem), **more}


class Plugin:
    """An exec plugin as clouds ship them: a program of its own. It counts its runs, and does what it was told last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "cloud-plugin"
        self.program.write_text(
            f'#!/bin/sh\necho run >> {folder}/runs\nprintf %s "$KUBERNETES_EXEC_INFO" > {folder}/info\n. {folder}/deed\n'
        )
        self.program.chmod(0o755)

    @property
    def runs(self) -> int:
        path = self.folder / "runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    @property
    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "info").read_text())
        return found

    def does(self, script: str) -> None:
        (self.folder / "deed").write_text(script)

    def says(self, *, api_version: str = V1, **status: str) -> None:
        credential = {"apiVersion": api_version, "kind": "ExecCredential", "status": status}
        (self.folder / "answer").write_text(json.dumps(credential))
        self.does(f"cat {self.folder}/answer")

    def user(self, **more: Any) -> dict[str, Any]:
        return {"exec": {"apiVersion": V1, "command": str(self.program), "args": ["get-token"], **more}}


async def until(so: Callable[[], bool]) -> None:
    """A renewal goes on beside requests."""
    async with asyncio.timeout(60):
        while not so():
            await asyncio.sleep(0.01)


def speaking(credentials: Credentials, clock: Clock | None = None) -> Api:
    return Api(credentials, RateLimiter(1_000, 1_000, clock or SystemClock()), Random(1))


async def who(api: Api) -> str:
    """As whom the server sees this session."""
    review = await api.create(REVIEWS, {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    return str(review["status"]["userInfo"]["username"])


async def account_token(admin: Api, namespace: str, name: str) -> str:
    """A token of a new service account: a JWT that ends in an hour."""
    await admin.create(ACCOUNTS.path(namespace), {"metadata": {"name": name}})
    made = await admin.create(ACCOUNTS.path(namespace, name, "token"), {"spec": {}})
    return str(made["status"]["token"])
