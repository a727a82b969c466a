"""Exec plugins, issuers and proxies of kubeconfigs: real programs and servers, and a real API server where it has to agree."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client import exec_plugin
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.client.credentials import TRY_AGAIN_S
from reconciler.kubernetes.client.kubeconfig import READ_EVERY_S, from_kubeconfig
from reconciler.kubernetes.client.pod_exec import PROTOCOL
from reconciler.kubernetes.client.refusals import CredentialsError, NotAllowedError, UnreachableError
from reconciler.kubernetes.objects.resource import PODS
from reconciler.model.clock import SystemClock
from solver.model.quantities import Instant
from tests.kubernetes.kubeconfigs import V1, Plugin, account_token, encoded, kubeconfig, of, speaking, until, who
from tests.kubernetes.sessions import a_namespace, session
from tests.kubernetes.test_pace import ManualClock

HOUR_S = 3600
HANGING_S = 20
"""A plugin is over long before, or the test says that it is not: it does not wait for what was to be ended."""


def at(seconds: int) -> str:
    return str(Instant(seconds * 1000))


def credential(status: object) -> dict[str, object]:
    return {"apiVersion": V1, "kind": "ExecCredential", "status": status}


async def bounded(story: Awaitable[object]) -> None:
    async with asyncio.timeout(HANGING_S):
        await story


def is_over(noted: Path) -> bool:
    """Whether the process whose number a plugin has noted runs no more."""
    with suppress(OSError):  # it is gone
        return "State:\tZ" in Path(f"/proc/{noted.read_text().strip()}/status").read_text()
    return True


def printing(answer: object) -> str:
    return f"echo '{json.dumps(answer)}'"


def test_a_plugin_is_run_once_and_told_what_it_asked_for(tmp_path: Path) -> None:
    async def story() -> None:
        plugin = Plugin(tmp_path)
        plugin.says(token="t1")
        extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
        cluster = {"tls-server-name": "api.example", "extensions": [extension]}
        path = kubeconfig(tmp_path, cluster, plugin.user(provideClusterInfo=True, env=[{"name": "A", "value": "b"}]))
        credentials = from_kubeconfig(path, ManualClock())
        assert plugin.runs == 0, "reading a kubeconfig runs nothing"
        await credentials.transport()
        headers = await asyncio.gather(*(credentials.authorization() for _ in range(20)))
        assert set(headers) == {"Bearer t1"}
        assert plugin.runs == 1
        assert (plugin.info["apiVersion"], plugin.info["kind"]) == (V1, "ExecCredential")
        told = plugin.info["spec"]["cluster"]
        assert (told["server"], told["tls-server-name"]) == ("https://api.example:6443", "api.example")
        assert told["config"] == {"audience": "a"}

    asyncio.run(story())


def test_v1beta1_is_spoken_too(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    beta = "client.authentication.k8s.io/v1beta1"
    plugin.says(api_version=beta, token="t1")
    credentials = from_kubeconfig(kubeconfig(tmp_path, user=plugin.user(apiVersion=beta)), ManualClock())
    asyncio.run(credentials.transport())
    assert credentials._header() == "Bearer t1"


def test_a_token_is_fetched_anew_before_it_ends_while_requests_go_on(tmp_path: Path) -> None:
    async def story() -> None:
        clock, plugin = ManualClock(), Plugin(tmp_path)
        plugin.says(token="t1", expirationTimestamp=at(HOUR_S))
        credentials = from_kubeconfig(kubeconfig(tmp_path, user=plugin.user()), clock)
        await credentials.transport()
        plugin.says(token="t2", expirationTimestamp=at(2 * HOUR_S))
        clock.now_s = HOUR_S - 61
        assert await credentials.authorization() == "Bearer t1"
        assert plugin.runs == 1
        clock.now_s = HOUR_S - 59
        assert await credentials.authorization() == "Bearer t1", "not held up by the plugin"
        await until(lambda: credentials._header() == "Bearer t2")
        assert plugin.runs == 2
        plugin.says(token="t3", expirationTimestamp=at(9 * HOUR_S))
        clock.now_s = 2 * HOUR_S + 1
        assert await credentials.authorization() == "Bearer t3", "the old one is worth nothing now"

    asyncio.run(story())


def test_a_plugin_that_fails_later_ends_nothing_until_its_token_does(tmp_path: Path) -> None:
    async def story() -> None:
        clock, plugin = ManualClock(), Plugin(tmp_path)
        plugin.says(token="t1", expirationTimestamp=at(HOUR_S))
        credentials = from_kubeconfig(kubeconfig(tmp_path, user=plugin.user()), clock)
        async with speaking(credentials) as api:
            plugin.does("echo no network >&2; exit 7")
            clock.now_s = HOUR_S - 30
            assert await credentials.authorization() == "Bearer t1"
            await until(lambda: plugin.runs == 2 and credentials._failure is not None)
            clock.now_s += 1
            assert await credentials.authorization() == "Bearer t1"
            assert plugin.runs == 2, "not asked again at once"
            clock.now_s = HOUR_S + 30
            with pytest.raises(UnreachableError, match="cloud-plugin ended with exit code 7: no network") as refused:
                await api.create("/a", {})
            assert not refused.value.sent
            assert plugin.runs == 3, "five tries of a request are one of the plugin"
            plugin.says(token="t2")
            clock.now_s += TRY_AGAIN_S
            assert await credentials.authorization() == "Bearer t2"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("deed", "problem"),
    [
        ("echo first >&2; echo please log in >&2; exit 3", "ended with exit code 3: first\nplease log in. Run it by hand"),
        ("kill -9 $$", "ended with exit code -9. "),
        ("echo Opening your browser", "printed no ExecCredential"),
        ("echo '[]'", "printed no ExecCredential"),
        ("echo '{}'", "printed no ExecCredential"),
        (printing({"apiVersion": "v2", "kind": "ExecCredential", "status": {}}), "answered as v2 to client.auth"),
        (printing(credential({})), "without a token or certificate"),
        (printing(credential(1)), "without a token or certificate"),
        (printing(credential({"token": "a", "expirationTimestamp": "soon"})), "soon"),
        (printing(credential({"clientCertificateData": "a"})), "without its key"),
    ],
)  # fmt: skip
def test_a_plugin_that_fails_is_one_error_with_place_problem_and_fix(tmp_path: Path, deed: str, problem: str) -> None:
    plugin = Plugin(tmp_path)
    plugin.does(deed)
    path = kubeconfig(tmp_path, user=plugin.user(args=["--client-secret", "s3cret"]))
    with pytest.raises(CredentialsError) as refused:
        asyncio.run(from_kubeconfig(path, ManualClock()).transport())
    assert problem in str(refused.value)
    assert str(path) in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_plugin_that_is_not_there_says_how_to_get_it(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": V1, "command": "no-such-plugin", "installHint": "Install it with: get-plugin"}}
    with pytest.raises(CredentialsError, match=r"no-such-plugin can't be started: No such file .*get-plugin"):
        asyncio.run(from_kubeconfig(kubeconfig(tmp_path, user=user), ManualClock()).transport())


def test_a_plugin_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_plugin, "EXEC_S", 0.5)
    plugin = Plugin(tmp_path)
    plugin.does(f"sleep 1000 & echo $! > {tmp_path}/child; wait")

    async def story() -> None:
        with pytest.raises(CredentialsError, match=r"cloud-plugin had not ended after 0\.5 s and was killed"):
            await from_kubeconfig(kubeconfig(tmp_path, user=plugin.user()), ManualClock()).transport()
        await until(lambda: is_over(tmp_path / "child"))

    asyncio.run(bounded(story()))


def test_a_plugin_that_prints_without_end_is_ended_with_its_children(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.does(f"yes & echo $! > {tmp_path}/child; wait")

    async def story() -> None:
        with pytest.raises(
            CredentialsError, match=r"cloud-plugin printed more than 1 MiB and was killed.*nothing else"
        ):
            await from_kubeconfig(kubeconfig(tmp_path, user=plugin.user()), ManualClock()).transport()
        await until(lambda: is_over(tmp_path / "child"))

    asyncio.run(bounded(story()))


@pytest.mark.parametrize(("more", "fits"), [(0, True), (1, False)])
def test_a_plugin_may_print_one_mebibyte(tmp_path: Path, more: int, fits: bool) -> None:
    plugin = Plugin(tmp_path)
    plugin.says(token="t1")
    answer = tmp_path / "answer"
    answer.write_text(answer.read_text().ljust(exec_plugin.ANSWER_BYTES_MAX + more))
    credentials = from_kubeconfig(kubeconfig(tmp_path, user=plugin.user()), ManualClock())
    if fits:
        asyncio.run(bounded(credentials.transport()))
        assert credentials._header() == "Bearer t1"
    else:
        with pytest.raises(CredentialsError, match="more than 1 MiB"):
            asyncio.run(bounded(credentials.transport()))


def test_a_plugin_that_says_much_on_standard_error_is_heard_out(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.says(token="t1")
    plugin.does(f"head -c 3000000 /dev/zero | tr '\\0' x >&2; cat {tmp_path}/answer")
    credentials = from_kubeconfig(kubeconfig(tmp_path, user=plugin.user()), ManualClock())
    asyncio.run(bounded(credentials.transport()))
    assert credentials._header() == "Bearer t1"


def test_of_much_on_standard_error_the_end_is_shown(tmp_path: Path) -> None:
    plugin = Plugin(tmp_path)
    plugin.does("head -c 3000000 /dev/zero | tr '\\0' x >&2; echo log in anew >&2; exit 3")
    with pytest.raises(CredentialsError, match=r"xlog in anew\. Run it") as refused:
        asyncio.run(bounded(from_kubeconfig(kubeconfig(tmp_path, user=plugin.user()), ManualClock()).transport()))
    assert len(str(refused.value)) < 1_000


@pytest.mark.kubernetes
def test_a_plugins_token_speaks_and_is_fetched_once_more_after_a_401(cluster: Cluster, tmp_path: Path) -> None:
    async def story() -> None:
        async with session(cluster) as admin:
            space = await a_namespace(admin)
            good = await account_token(admin, space, "robot")
        clock, plugin = ManualClock(), Plugin(tmp_path)
        plugin.says(token="revoked")
        credentials = from_kubeconfig(kubeconfig(tmp_path, of(cluster), plugin.user()), clock)
        async with speaking(credentials) as api:
            with pytest.raises(NotAllowedError):
                await who(api)
            assert plugin.runs == 1, "it has just been asked"
            clock.now_s += TRY_AGAIN_S
            plugin.says(token=good)
            names = await asyncio.gather(*(who(api) for _ in range(10)))
            assert set(names) == {f"system:serviceaccount:{space}:robot"}
            assert plugin.runs == 2

    asyncio.run(story())


async def watched(api: Api) -> None:
    async for _ in api.stream(PODS.path(), {"watch": "true"}, 60.0):
        pass


async def connected(api: Api) -> None:
    async with api.channels(PODS.path("default", "p", "exec"), [("command", "true"), ("stdout", "true")], PROTOCOL):
        pass


@pytest.mark.kubernetes
@pytest.mark.parametrize("deed", [watched, connected])
def test_watches_and_websockets_survive_a_401_too(
    cluster: Cluster, tmp_path: Path, deed: Callable[[Api], Awaitable[None]]
) -> None:
    async def story() -> None:
        clock, plugin = ManualClock(), Plugin(tmp_path)
        async with session(cluster) as admin:
            good = await account_token(admin, await a_namespace(admin), "robot")
        plugin.says(token="revoked")
        credentials = from_kubeconfig(kubeconfig(tmp_path, of(cluster), plugin.user()), clock)
        async with speaking(credentials) as api:
            with pytest.raises(NotAllowedError, match="401"):
                await deed(api)
            clock.now_s += TRY_AGAIN_S
            plugin.says(token=good)
            with pytest.raises(NotAllowedError, match="403"):  # known now, and without rights
                await deed(api)
            assert plugin.runs == 2

    asyncio.run(story())


@pytest.mark.kubernetes
def test_a_plugins_client_certificate_speaks_and_is_renewed(cluster: Cluster, tmp_path: Path) -> None:
    async def story() -> None:
        clock, plugin = ManualClock(), Plugin(tmp_path)

        def gives(user: str, ends_s: int) -> None:
            certificate, key = (pem.decode() for pem in cluster.authority.client(user))
            plugin.says(clientCertificateData=certificate, clientKeyData=key, expirationTimestamp=at(ends_s))

        gives("first", HOUR_S)
        async with speaking(from_kubeconfig(kubeconfig(tmp_path, of(cluster), plugin.user()), clock)) as api:
            assert await who(api) == "first"
            gives("second", 2 * HOUR_S)
            clock.now_s = HOUR_S + 1
            assert await who(api) == "second"
            assert plugin.runs == 2

    asyncio.run(story())


@pytest.mark.kubernetes
@pytest.mark.parametrize("kind", ["certificate", "token"])
def test_a_kubeconfig_is_replaced_beneath_a_session(cluster: Cluster, tmp_path: Path, kind: str) -> None:
    """The session goes on as another user, also on connections that were open; what is half written ends nothing."""

    async def given(admin: Api, namespace: str, name: str) -> tuple[dict[str, str], str]:
        if kind == "token":
            token = await account_token(admin, namespace, name)
            return {"token": token}, f"system:serviceaccount:{namespace}:{name}"
        certificate, key = cluster.authority.client(name)
        return {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}, name

    async def story() -> None:
        clock = ManualClock()
        async with session(cluster) as admin:
            namespace = await a_namespace(admin)
            (first, before), (second, after) = [await given(admin, namespace, name) for name in ("first", "second")]
            path = kubeconfig(tmp_path, of(cluster), first)
            async with speaking(from_kubeconfig(path, clock)) as api:
                assert await who(api) == before
                path.write_text("users: [")
                clock.now_s += READ_EVERY_S
                assert [await who(api) for _ in range(3)] == [before] * 3
                kubeconfig(tmp_path, of(cluster), second, name="next").rename(path)
                clock.now_s += READ_EVERY_S
                async with asyncio.timeout(HANGING_S):
                    while await who(api) != after:
                        await asyncio.sleep(0)
                assert [await who(api) for _ in range(3)] == [after] * 3

    asyncio.run(story())


@asynccontextmanager
async def a_proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """An HTTP proxy that leads wherever CONNECT asks; its address, and what was asked for."""
    asked: list[str] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while block := await reader.read(65536):
                writer.write(block)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        target = head.split()[1].decode()
        asked.append(target)
        host, _, port = target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(carry(reader, back), carry(there, writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


@pytest.mark.kubernetes
@pytest.mark.filterwarnings("ignore:unclosed transport:ResourceWarning")
def test_the_proxy_is_that_of_the_kubeconfig_alone(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with a_proxy() as (address, asked):
            monkeypatch.setenv("HTTPS_PROXY", address)
            certificate, key = certificate_of_ada(cluster, tmp_path)
            user = {"client-certificate": certificate, "client-key": key}
            async with speaking(from_kubeconfig(kubeconfig(tmp_path, of(cluster), user), SystemClock())) as api:
                assert await who(api) == "ada"
            assert asked == []
            through = of(cluster, **{"proxy-url": address})
            async with speaking(from_kubeconfig(kubeconfig(tmp_path, through, user), SystemClock())) as api:
                assert await who(api) == "ada"
            assert asked == [cluster.server.removeprefix("https://")]

    asyncio.run(story())


def certificate_of_ada(cluster: Cluster, folder: Path) -> tuple[str, str]:
    certificate, key = cluster.authority.client("ada")
    (folder / "cert").write_bytes(certificate)
    (folder / "key").write_bytes(key)
    return "cert", "key"


@pytest.mark.kubernetes
@pytest.mark.parametrize(
    ("more", "speaks"),
    [
        ({"tls-server-name": "localhost"}, True),
        ({"tls-server-name": "elsewhere.example"}, False),
        ({"certificate-authority-data": None}, False),
        ({"certificate-authority-data": None, "insecure-skip-tls-verify": True}, True),
    ],
)
def test_whom_the_server_has_to_be_is_as_written(
    cluster: Cluster, tmp_path: Path, more: dict[str, Any], speaks: bool
) -> None:
    async def story() -> None:
        certificate, key = certificate_of_ada(cluster, tmp_path)
        user = {"client-certificate": certificate, "client-key": key}
        path = kubeconfig(tmp_path, {**of(cluster), **more}, user)
        async with speaking(from_kubeconfig(path, SystemClock())) as api:
            if speaks:
                assert await who(api) == "ada"
                return
            api._sleep = lambda _: asyncio.sleep(0)
            with pytest.raises(UnreachableError, match="certificate") as refused:
                await who(api)
            assert not refused.value.sent

    asyncio.run(story())
