"""Kubeconfigs: merged and used as kubectl would, or refused with what to do."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconciler.access.secret_file import SECRETS
from reconciler.kubernetes.client.credentials import Credentials
from reconciler.kubernetes.client.kubeconfig import READ_EVERY_S, Kubeconfig, from_kubeconfig, kubeconfig_paths
from reconciler.kubernetes.client.refusals import CredentialsError
from reconciler.kubernetes.client.transport import KubeTransport
from reconciler.server.kubernetes_cluster import credentials_of
from reconciler.server.settings import KubernetesSettings
from tests.kubernetes.kubeconfigs import AUTHORITY, V1, encoded, kubeconfig, until
from tests.kubernetes.test_pace import ManualClock


def loaded(credentials: Credentials) -> tuple[KubeTransport, str]:
    async def story() -> tuple[KubeTransport, str]:
        return await credentials.transport(), await credentials.authorization()

    return asyncio.run(story())


def test_the_current_context_says_where_and_as_whom(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"tls-server-name": "api.example", "proxy-url": "http://proxy.example:3128"})
    way, header = loaded(from_kubeconfig(path, ManualClock()))
    assert (way.server, way.server_name) == ("https://api.example:6443", "api.example")
    assert way.proxy == "http://proxy.example:3128"
    assert header == "Bearer secret"
    assert len(way.ssl_context.get_ca_certs()) == 1, "nobody but the cluster's own authority vouches for it"


def test_files_are_named_as_seen_from_the_kubeconfig_that_names_them(tmp_path: Path) -> None:
    """Two folders, the second with a colon: a cluster of one file, its user of the other."""
    clusters, users = tmp_path / "clusters", tmp_path / "users:mine"
    clusters.mkdir()
    users.mkdir()
    certificate, key = AUTHORITY.client("u")
    (clusters / "ca").write_bytes(AUTHORITY.pem)
    (users / "cert").write_bytes(certificate)
    (users / "key").write_bytes(key)
    cluster = {"certificate-authority": "ca", "certificate-authority-data": None}
    first = kubeconfig(clusters, cluster)
    first.write_text(yaml.safe_dump({**yaml.safe_load(first.read_text()), "users": None}))
    second = kubeconfig(users, user={"client-certificate": "cert", "client-key": "key"})
    way, header = loaded(from_kubeconfig([first, second], ManualClock()))
    assert len(way.ssl_context.get_ca_certs()) == 1
    assert header == ""


def test_of_several_files_the_first_that_names_something_wins(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path, user={"token": "first"}, name="first")
    content = yaml.safe_load(kubeconfig(tmp_path, user={"token": "second"}, name="second").read_text())
    content["current-context"] = "far"
    content["contexts"].append({"name": "far", "context": {"cluster": "f", "user": "v", "namespace": "vision"}})
    content["clusters"].append({"name": "f", "cluster": {"server": "https://far.example"}})
    content["users"].append({"name": "v", "user": {"token": "v"}})
    second = tmp_path / "second"
    second.write_text(yaml.safe_dump(content))
    clock = ManualClock()
    assert loaded(from_kubeconfig([first, second], clock))[1] == "Bearer first"
    assert loaded(from_kubeconfig([second, first], clock))[1] == "Bearer v"
    assert loaded(from_kubeconfig([first, second], clock, "far"))[0].server == "https://far.example"
    assert Kubeconfig([first, second], clock, "far").namespace() == "vision"
    assert Kubeconfig([first, second], clock).namespace() == "default"


def test_what_kubectl_would_read_is_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).touch()
    named = {"KUBECONFIG": f"{tmp_path}/gone:{tmp_path}/a::{tmp_path}/b"}
    assert kubeconfig_paths(named) == (tmp_path / "a", tmp_path / "b")
    assert kubeconfig_paths({"KUBECONFIG": "nowhere"}) == (Path("nowhere"),)
    assert kubeconfig_paths({}) == (Path.home() / ".kube" / "config",)


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """Kubeconfigs of two clusters: contexts `near`, which is the current one of both together, and `far`."""
    made = []
    for name in ("near", "far"):
        content = yaml.safe_load(
            kubeconfig(tmp_path, {"server": f"https://{name}.example"}, {"token": name}).read_text()
        )
        context = {"name": name, "context": {"cluster": name, "user": name}}
        content |= {"current-context": name, "contexts": [context]}
        content["clusters"][0]["name"] = content["users"][0]["name"] = name
        made.append(tmp_path / name)
        made[-1].write_text(yaml.safe_dump(content))
    return made[0], made[1]


@pytest.mark.parametrize(("context", "server"), [(None, "near"), ("near", "near"), ("far", "far")])
def test_a_control_plane_reaches_the_context_that_it_is_told(
    two: tuple[Path, Path], context: str | None, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "KUBERNETES_SERVICE_HOST", "10.0.0.1"
    )  # a pod's own server: a kubeconfig that is named goes before
    way, header = loaded(credentials_of(settings(two, context), ManualClock()))
    assert (way.server, header) == (f"https://{server}.example", f"Bearer {server}")


def test_a_context_without_a_kubeconfig_is_one_of_those_that_kubectl_reads(
    two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, two)))
    assert loaded(credentials_of(settings((), "far"), ManualClock()))[0].server == "https://far.example"


def test_a_context_that_is_not_there_is_said_with_those_that_are(two: tuple[Path, Path]) -> None:
    with pytest.raises(
        CredentialsError, match=f"{two[0]}, {two[1]}: there is no context 'moon'. Choose one: far, near"
    ):
        credentials_of(settings(two, "moon"), ManualClock())


def settings(kubeconfigs: tuple[Path, ...], context: str | None) -> KubernetesSettings:
    return KubernetesSettings(kubeconfigs, context, "quorate-system", "quorate", "me", 1.0, 1, ("a", "b"))


@pytest.mark.parametrize(
    ("cluster", "user", "problem"),
    [
        ({}, {"auth-provider": {"name": "gcp"}}, "auth-provider gcp is not supported.*gke-gcloud-auth-plugin"),
        ({}, {"auth-provider": {"name": "azure"}}, "kubelogin convert-kubeconfig"),
        ({}, {"username": "a", "password": "b"}, "username is not supported"),
        ({}, {"as": "admin", "token": "t"}, "as is not supported.*Name the account itself"),
        ({}, {"as-groups": ["admins"], "token": "t"}, "as-groups is not supported"),
        ({"proxy-url": "socks5://localhost:1"}, None, "socks5://localhost:1' is not supported"),
        ({"server": "http://localhost:1"}, None, "not reached over https"),
        ({"certificate-authority-data": "!"}, None, "Both have to be PEM"),
        ({"certificate-authority-data": "YQ=="}, None, "certificate authority or the client certificate can't be used"),
        ({}, {"tokenFile": "nowhere"}, "nowhere"),
        ({}, {"token": "two words"}, "has 2 words instead of one"),
        ({}, {"client-certificate-data": "YQ==", "client-key-data": "YQ=="}, "client certificate can't be used"),
        ({}, {"client-certificate-data": "YQ==", "client-key-data": encoded(b"BEGIN ENCRYPTED PRIVATE KEY")}, "Decrypt"),
        ({}, {"exec": {"command": "aws"}}, "exec is malformed: .*apiVersion"),
        ({}, {"exec": {"command": "aws", "apiVersion": V1, "env": ["A=b"]}}, "exec is malformed"),
        ({}, {"exec": {"command": "aws", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "Update the plugin"),
        ({}, {"exec": {"command": "aws", "apiVersion": V1, "interactiveMode": "Always"}}, "wants a terminal"),
    ],
)  # fmt: skip
def test_what_would_speak_as_or_to_somebody_else_is_refused(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, problem: str
) -> None:
    with pytest.raises(CredentialsError, match=problem):
        loaded(from_kubeconfig(kubeconfig(tmp_path, cluster, user), ManualClock()))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: [",
        "current-context: here\n",
        "current-context: here\ncontexts: [1]\n",
        "current-context: here\nusers: {a: b}\n",
        "current-context: h\ncontexts: [{name: h, context: {cluster: c, user: gone}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://api.example'}}]",
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(CredentialsError, match=str(path)):
        from_kubeconfig(path, ManualClock())


def test_a_context_without_user_speaks_as_nobody(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    content = yaml.safe_load(path.read_text())
    del content["contexts"][0]["context"]["user"]
    path.write_text(yaml.safe_dump(content))
    assert loaded(from_kubeconfig(path, ManualClock()))[1] == ""


def test_messages_do_not_show_tokens(tmp_path: Path) -> None:
    user = {"token": "s3cret", "auth-provider": {"name": "oidc", "config": "s3cret"}}
    with pytest.raises(CredentialsError) as refused:
        loaded(from_kubeconfig(kubeconfig(tmp_path, user=user), ManualClock()))
    assert "s3cret" not in str(refused.value)


def test_the_line_of_a_file_that_is_no_yaml_is_named_and_not_shown(tmp_path: Path) -> None:
    """It may be the one with the token."""
    path = kubeconfig(tmp_path)
    path.write_text(path.read_text().replace("token: secret", "token: 'secret"))
    with pytest.raises(CredentialsError, match=r"is no YAML from line \d+ on\. Make it anew") as refused:
        Kubeconfig(path, ManualClock())
    assert "secret" not in f"{refused.value!r} {refused.value.__cause__!r}"


def test_what_is_wrong_with_files_that_are_changed_is_told_until_it_is_mended(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path)
    good, config = path.read_text(), Kubeconfig(path, ManualClock())
    for spoilt, told in (("half: [\n", "is no YAML"), (good.replace("current-context", "no-context"), "context")):
        path.write_text(spoilt)
        asyncio.run(config.load())
        found = [each for each in SECRETS.looked_at().items() if each[0] == str(path)]
        assert [(each.is_kept, told in each.problem) for _, each in found if each] == [(True, True)]
        path.write_text(good)
        asyncio.run(config.load())
        assert SECRETS.looked_at()[str(path)] is None


def test_keys_lie_in_no_file_once_a_session_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    certificate, key = AUTHORITY.client("u")
    user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    loaded(from_kubeconfig(kubeconfig(tmp_path, user=user), ManualClock()))
    assert list(temporary.iterdir()) == []


def test_a_token_file_is_read_anew_each_minute(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        token = tmp_path / "token"
        token.write_text("first\n")
        credentials = from_kubeconfig(kubeconfig(tmp_path, user={"tokenFile": "token", "token": "stale"}), clock)
        await credentials.transport()
        token.write_text("second\n")
        assert await credentials.authorization() == "Bearer first"
        clock.now_s += READ_EVERY_S
        headers = [await credentials.authorization()]
        await until(lambda: credentials._header() == "Bearer second")
        headers.append(await credentials.authorization())
        assert headers == ["Bearer first", "Bearer second"]

    asyncio.run(story())
