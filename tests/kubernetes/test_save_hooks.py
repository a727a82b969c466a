"""Pods are asked by their hooks to save their work, on a real API server: by HTTP, and by a command that its kubelet runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from hack.kubernetes.cluster import Cluster
from reconciler.kubernetes.client.pod_exec import ExecFailedError, execute
from reconciler.kubernetes.client.refusals import NotFoundError, RefusedError
from reconciler.kubernetes.objects.resource import PODS
from tests.kubernetes.executed import executing
from tests.kubernetes.gangs import a_gang, seen
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.sessions import REAL, SOON_S, a_namespace, session
from tests.kubernetes.test_eviction import GRACE, Hands, events, evict, evictor, until_left, until_running, view

pytestmark = REAL

FAILED = {"status": "Failure", "message": "command terminated with exit code 3", "reason": "NonZeroExitCode"}


@asynccontextmanager
async def hook(answers: list[int]) -> AsyncIterator[tuple[int, list[str]]]:
    """An HTTP server on loopback that gives these answers, and 200 after them; its port, and what it was asked."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path} {await request.text()}")
        return web.Response(status=answers.pop(0) if answers else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1], asked
    finally:
        await runner.cleanup()


def test_a_gang_whose_hooks_have_answered_is_evicted(cluster: Cluster) -> None:
    async def story() -> None:
        async with (
            session(cluster) as api,
            kubelet(api, ["s1"], {}),
            executing(cluster, api, "s1") as door,
            hook([]) as (port, asked),
            evictor(api, Hands()) as work,
        ):
            namespace = await a_namespace(api)
            by_http = {"quorate.dev/checkpoint-hook": f"http:{port}/save"}
            job = await a_gang(api, namespace, "http", ["s1", "s1"], by_http)
            by_command = {"quorate.dev/checkpoint-hook": "exec:save --to '/my disk'"}
            other = await a_gang(api, namespace, "exec", ["s1"], by_command)
            await until_running(api, namespace)
            for name in ("http-0", "http-1"):
                address = {"status": {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
                await api.patch(PODS.path(namespace, name, "status"), address)
            await work.begin([evict(job), evict(other)], await view(api, namespace))
            async with asyncio.timeout(SOON_S):
                while "evicting" not in events(await work.advance(await view(api, namespace))):
                    await asyncio.sleep(0.01)
                while (await view(api, namespace)).pods:
                    await work.advance(await view(api, namespace))
            assert asked == ['POST /save {"by":"2026-11-21T08:05:00Z"}'] * 2
            assert door.run == [("exec-0", "main", ["save", "--to", "/my disk"])]

    asyncio.run(story())


def test_hooks_that_fail_are_asked_again_and_at_the_deadline_the_gang_leaves_and_it_is_said(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        clock = Hands()
        async with session(cluster) as api, kubelet(api, ["s2"], {}), executing(cluster, api, "s2") as door:
            namespace = await a_namespace(api)
            door.ends = [FAILED, FAILED]
            job = await a_gang(api, namespace, "runs", ["s2"], {"quorate.dev/checkpoint-hook": "exec:save"})
            await until_running(api, namespace)
            async with evictor(api, clock, rest_s=0.01) as work:
                await work.begin([evict(job)], await view(api, namespace))
                async with asyncio.timeout(SOON_S):
                    while len(door.run) < 3:
                        await asyncio.sleep(0.01)
                while (
                    "quorate.dev/checkpointed"
                    not in next(iter((await seen(api, namespace)).pods.values())).metadata.annotations
                ):
                    await asyncio.sleep(0.01)
                assert events(await work.advance(await view(api, namespace))) == ["evicting"]
                await until_left(api, namespace, set())
            door.ends = [FAILED, None]
            job = await a_gang(api, namespace, "runs", ["s2"], {"quorate.dev/checkpoint-hook": "exec:save"})
            await until_running(api, namespace)
            async with evictor(api, clock, rest_s=0.01) as work:
                await work.begin([evict(job)], await view(api, namespace))
                async with asyncio.timeout(SOON_S):
                    while len(door.run) < 5:
                        await asyncio.sleep(0.01)
                clock.at = clock.at.after(GRACE)
                assert events(await work.advance(await view(api, namespace))) == ["evicting"]
            await until_left(api, namespace, set())

    asyncio.run(story())
    assert "by 2026-11-21T08:05:00Z; the hook of runs-0: command terminated with exit code 3" in capsys.readouterr().out


def test_how_a_command_ends_is_told(cluster: Cluster) -> None:
    async def story() -> None:
        async with session(cluster) as api, kubelet(api, ["s3"], {}), executing(cluster, api, "s3") as door:
            namespace = await a_namespace(api)
            await a_gang(api, namespace, "runs", ["s3"])
            await until_running(api, namespace)
            await execute(api, (namespace, "runs-0"), "main", ["true"])
            door.ends = [FAILED]
            with pytest.raises(ExecFailedError, match="exit code 3"):
                await execute(api, (namespace, "runs-0"), "main", ["false"])
            with pytest.raises(RefusedError):
                await execute(api, (namespace, "runs-0"), "other", ["true"])
            with pytest.raises(NotFoundError):
                await execute(api, (namespace, "gone"), "main", ["true"])

    asyncio.run(story())
