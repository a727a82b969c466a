"""Kubeconfigs and what a pod is given: used as kubectl would, or refused with what to do."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.kubernetes.certificates import Authority
from reconciler.kubernetes.client.credentials import TOKEN_READ_EVERY_S, CredentialsError, in_cluster
from reconciler.kubernetes.client.kubeconfig import from_kubeconfig, kubeconfig_path
from tests.kubernetes.test_pace import ManualClock

AUTHORITY = Authority()


def kubeconfig(folder: Path, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> Path:
    path = folder / "config"
    authority = base64.b64encode(AUTHORITY.pem).decode()
    shipped = {"server": "https://api.example:6443", "certificate-authority-data": authority}
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}, {"name": "there", "context": {}}],
        "clusters": [{"name": "c", "cluster": {**shipped, **(cluster or {})}}],
        "users": [{"name": "u", "user": user if user is not None else {"token": "secret"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_current_context_says_where_and_as_whom(tmp_path: Path) -> None:
    credentials = from_kubeconfig(kubeconfig(tmp_path, {"tls-server-name": "api.example"}), ManualClock())
    assert credentials.server == "https://api.example:6443"
    assert credentials.server_name == "api.example"
    assert credentials.token.now() == "secret"
    assert len(credentials.tls.get_ca_certs()) == 1, "nobody but the cluster's own authority vouches for it"


def test_files_are_named_as_seen_from_the_kubeconfig(tmp_path: Path) -> None:
    certificate, key = AUTHORITY.client("u")
    for name, content in {"ca": AUTHORITY.pem, "cert": certificate, "key": key}.items():
        (tmp_path / name).write_bytes(content)
    user = {"client-certificate": "cert", "client-key": "key"}
    cluster = {"certificate-authority": "ca", "certificate-authority-data": None}
    credentials = from_kubeconfig(kubeconfig(tmp_path, cluster, user), ManualClock())
    assert len(credentials.tls.get_ca_certs()) == 1
    assert credentials.token.now() == ""


@pytest.mark.parametrize(
    ("cluster", "user", "problem"),
    [
        ({}, {"exec": {"command": "aws"}}, "exec is not supported. Use a service account's token"),
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider is not supported"),
        ({}, {"username": "a", "password": "b"}, "username is not supported"),
        ({}, {"as": "admin", "token": "t"}, "as is not supported"),
        ({"insecure-skip-tls-verify": True}, None, "insecure-skip-tls-verify is not supported"),
        ({"proxy-url": "http://localhost:1"}, None, "proxy-url is not supported"),
        ({"server": "http://localhost:1"}, None, "not reached over https"),
        ({"certificate-authority-data": "!"}, None, "certificate-authority can't be read"),
        ({"certificate-authority-data": "YQ=="}, None, "certificate authority can't be read"),
        ({}, {"tokenFile": "nowhere"}, "nowhere: can't be read: No such file or directory"),
        ({}, {"client-certificate-data": "YQ==", "client-key-data": "YQ=="}, "client certificate can't be used"),
    ],
)
def test_what_would_speak_as_or_to_somebody_else_is_refused(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, problem: str
) -> None:
    with pytest.raises(CredentialsError, match=problem):
        from_kubeconfig(kubeconfig(tmp_path, cluster, user), ManualClock())


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "current-context: here\n", "current-context: here\ncontexts: [1]\n"]
)
def test_a_file_that_is_no_kubeconfig_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=str(path)):
        from_kubeconfig(path, ManualClock())


def test_several_kubeconfigs_are_not_merged() -> None:
    assert kubeconfig_path({"KUBECONFIG": "a:"}) == Path("a")
    assert kubeconfig_path({}) == Path.home() / ".kube" / "config"
    with pytest.raises(CredentialsError, match="kubectl config view"):
        kubeconfig_path({"KUBECONFIG": "a:b"})


def test_a_pods_token_is_read_anew_each_minute(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.pem)
    (tmp_path / "token").write_text("first\n")
    clock = ManualClock()
    service = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    credentials = in_cluster(service, clock, tmp_path)
    assert credentials.server == "https://[fd00::1]:443"
    (tmp_path / "token").write_text("second\n")
    assert credentials.token.now() == "first"
    clock.now_s += TOKEN_READ_EVERY_S
    assert credentials.token.now() == "second"


@pytest.mark.parametrize("spoilt", ["gone", "empty", "folder"])
def test_a_token_that_can_not_be_read_for_a_moment_is_that_of_before(tmp_path: Path, spoilt: str) -> None:
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.pem)
    token = tmp_path / "token"
    token.write_text("first\n")
    clock = ManualClock()
    credentials = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, clock, tmp_path)
    token.unlink()
    if spoilt == "empty":
        token.write_text("")
    elif spoilt == "folder":
        token.mkdir()
    clock.now_s += TOKEN_READ_EVERY_S
    assert credentials.token.now() == "first"
    if spoilt == "folder":
        token.rmdir()
    token.write_text("second\n")
    clock.now_s += TOKEN_READ_EVERY_S
    assert credentials.token.now() == "second"


def test_outside_a_cluster_there_is_no_account() -> None:
    with pytest.raises(CredentialsError, match="Name a kubeconfig"):
        in_cluster({}, ManualClock())
