"""How pods say that they save their work: read into the job, asked at no other address than the pod's, and said where wrong."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import structlog
from aiohttp import web

from reconciler.kubernetes.binder.save_hooks import Hooks, hook_url
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.limits import LONGEST
from reconciler.kubernetes.objects.saves import (
    ONLY_WHEN_ASKED,
    ExecHook,
    HttpHook,
    hook_of,
    main_container,
    termination_of,
)
from reconciler.kubernetes.objects.wire import Pod, read
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import Checkpoint, Job
from solver.policy.policy import PriorityClass
from solver.quota.victims import Holder, lost_gpu_s
from tests.reconciler.kubernetes.samples import cluster, node, pod, the_gang

INTERVAL, GRACE, HOOK = (f"quorate.dev/checkpoint-{what}" for what in ("interval", "grace", "hook"))
SAVED = "quorate.dev/checkpointed"
BEGUN = "2026-11-20T08:00:00Z"


def job(*said: dict[str, str], **spec: Any) -> Job:
    gang = {"quorate.dev/gang": "g", "quorate.dev/gang-size": str(len(said))}
    pods = [pod(f"p{n}", 1, on="n1", annotations=gang | notes, spec=spec) for n, notes in enumerate(said)]
    for sent in pods:
        sent["status"]["startTime"] = BEGUN
    found = the_gang(cluster([node("n1")], pods)).job
    assert found is not None
    return found


def a_pod(hook: str = "", **said: Any) -> Pod:
    return read(pod("p", **{"annotations": {HOOK: hook} if hook else {}, **said}), Pod)


@pytest.mark.parametrize(
    ("said", "checkpoint"),
    [
        ([{}], None),
        ([{INTERVAL: "30m", GRACE: "5m"}], Checkpoint(Duration(1_800_000), Duration(300_000))),
        ([{INTERVAL: "30m"}], Checkpoint(Duration(1_800_000))),
        ([{GRACE: "5m"}], Checkpoint(ONLY_WHEN_ASKED, Duration(300_000))),
        ([{HOOK: "exec:save"}, {}], Checkpoint(ONLY_WHEN_ASKED)),
        ([{INTERVAL: "30m"}, {INTERVAL: "10m", GRACE: "1m"}], Checkpoint(Duration(1_800_000), Duration(60_000))),
        ([{INTERVAL: "0s"}], Checkpoint(ONLY_WHEN_ASKED)),
        ([{INTERVAL: "99999999999999w", GRACE: "99999999999999w"}], Checkpoint(LONGEST, LONGEST)),
        ([{INTERVAL: "often"}], Checkpoint(ONLY_WHEN_ASKED)),
    ],
)
def test_what_pods_say_is_the_jobs(said: list[dict[str, str]], checkpoint: Checkpoint | None) -> None:
    assert job(*said).spec.checkpoint == checkpoint


def test_more_time_to_end_than_usual_is_grace() -> None:
    assert job({}, terminationGracePeriodSeconds=30).spec.checkpoint is None
    assert job({}, terminationGracePeriodSeconds=120).spec.checkpoint == Checkpoint(ONLY_WHEN_ASKED, Duration(120_000))
    assert termination_of(a_pod(spec={"terminationGracePeriodSeconds": 0})) == 0


@pytest.mark.parametrize(
    ("times", "saved_at"),
    [
        (["", ""], None),
        (["2026-11-20T09:00:00Z", "2026-11-20T09:30:00Z"], "2026-11-20T09:00:00Z"),
        (["2026-11-20T09:00:00Z", ""], BEGUN),
        (["2026-11-19T09:00:00Z", "2026-11-19T09:00:00Z"], BEGUN),
        (["soon", "2026-11-20T09:00:00Z"], BEGUN),
    ],
)
def test_a_gang_has_saved_what_the_last_of_its_pods_has(times: list[str], saved_at: str | None) -> None:
    notes = [{GRACE: "5m", **({SAVED: time} if time else {})} for time in times]
    assert job(*notes).saved_at == (None if saved_at is None else Instant.parse(saved_at))


def test_of_two_alike_the_one_that_saved_later_loses_less() -> None:
    now = Instant.parse("2026-11-20T10:00:00Z")
    charge = {GpuType("H100-SXM5-80GB"): MilliGpu.gpus(1)}

    def lost(notes: dict[str, str]) -> float:
        return lost_gpu_s(Holder(job(notes), charge, PriorityClass("")), now, Duration(0))

    assert lost({GRACE: "5m", SAVED: "2026-11-20T09:59:00Z"}) == 60
    assert lost({GRACE: "5m", SAVED: "2026-11-20T09:00:00Z"}) == 3600
    assert lost({HOOK: "exec:save"}) == 7200


@pytest.mark.parametrize(
    ("said", "hook"),
    [
        ("http:8080/save", HttpHook(8080, "/save")),
        ("http:65535/", HttpHook(65535, "/")),
        ("exec:python -m save '/my disk'", ExecHook(("python", "-m", "save", "/my disk"))),
        *(
            (wrong, None)
            for wrong in (
                "http:0/", "http:65536/", "http:00080" + 5_000 * "0" + "/",
                "http:8080", "http:80 80/", "http:8080/a b", "http:8080/?x=1", "http:8080/#",
                "http:8080/%2e%2e", "http:" + "//169.254.169.254/", "http:example.org:80/", "http:@host/", "http:٣/",
                "https:8080/", "exec:", "exec:'", "save", "HTTP:8080/",
            )
        ),
    ],
)  # fmt: skip
def test_a_hook_is_a_port_and_a_path_or_a_command(said: str, hook: object) -> None:
    assert hook_of(a_pod(said)) == hook
    remarks = [remark.code for remark in the_gang(cluster([node("n1")], [pod("p", annotations={HOOK: said})])).remarks]
    assert remarks == ([] if hook else ["checkpoint-hook"])


def test_where_a_pods_address_is_its_nodes_http_is_not_asked() -> None:
    assert hook_of(a_pod("http:10250/", spec={"hostNetwork": True})) is None
    assert hook_of(a_pod("exec:save", spec={"hostNetwork": True})) is not None


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "a.b"]
)
def test_no_other_address_than_a_pods_is_asked(address: str) -> None:
    sent = pod("p")
    sent["status"]["podIP"] = address
    with pytest.raises(ValueError, match="address"):
        hook_url(read(sent, Pod), HttpHook(80, "/"))


@pytest.mark.parametrize(("address", "host"), [("10.1.2.3", "10.1.2.3"), ("fd00::3", "[fd00::3]")])
def test_a_pod_is_asked_at_its_own_address(address: str, host: str) -> None:
    sent = pod("p")
    sent["status"]["podIP"] = address
    assert hook_url(read(sent, Pod), HttpHook(80, "/x")) == f"http://{host}:80/x"


def test_the_main_container_is_that_of_kubectl() -> None:
    two = {"containers": [{"name": "sidecar"}, {"name": "train"}]}
    key = "kubectl.kubernetes.io/default-container"
    assert main_container(a_pod(spec=two)) == "sidecar"
    assert main_container(a_pod(spec=two, annotations={key: "train"})) == "train"
    assert main_container(a_pod(spec=two, annotations={key: "gone"})) == "sidecar"


def test_what_can_not_be_read_is_remarked() -> None:
    notes = {INTERVAL: "often", GRACE: "5 minutes", SAVED: "today"}
    remarks = the_gang(cluster([node("n1")], [pod("p", annotations=notes)])).remarks
    assert [(remark.code, str(remark).split()[0]) for remark in remarks] == [
        ("checkpoint-unreadable", INTERVAL),
        ("checkpoint-unreadable", GRACE),
        ("checkpoint-unreadable", SAVED),
    ]


class Clock:
    """Stands still."""

    def now(self) -> Instant:
        return Instant(0)

    def monotonic_s(self) -> float:
        return 0.0


def test_a_redirect_is_not_followed_and_a_proxy_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    saved = asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if len(asked) == 1:
            raise web.HTTPTemporaryRedirect("/elsewhere")
        return web.Response(text="ignored")

    async def write_down() -> None:
        saved.set()

    async def rest(_: float) -> None:
        await asyncio.sleep(0)

    async def story() -> None:
        app = web.Application()
        app.router.add_post("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        sent = pod("p")
        sent["status"]["podIP"] = "127.0.0.1"
        hook = HttpHook(runner.addresses[0][1], "/save")
        api = cast("Api", None)  # HTTP hooks need none
        async with Hooks(api, Clock(), structlog.get_logger(), rest, may_be=lambda _: True) as hooks:
            hooks.call(read(sent, Pod), hook, Instant(60_000), write_down)
            hooks.call(read(sent, Pod), hook, Instant(60_000), write_down)
            async with asyncio.timeout(60):
                await saved.wait()
            await asyncio.sleep(0)
            assert hooks.forget("uid-of-p") == ""
        await runner.cleanup()

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    asyncio.run(story())
    assert asked == ["/save", "/save"]
