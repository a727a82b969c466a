"""Pages show what is so, whatever names say, and let nothing foreign run."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
from fastapi.routing import APIRoute

from reconciler.access.authenticator import Authenticator
from reconciler.access.client_secrets import ClientSecrets
from reconciler.access.code_flow import CodeFlow
from reconciler.access.oidc import OidcVerifier
from reconciler.access.policy import AccessPolicy
from reconciler.access.session_keeper import SessionKeeper
from reconciler.access.tokens import UserTokenFile
from reconciler.api.rules import PAGES
from reconciler.web.console import console_routers
from reconciler.web.static_files import static_files
from solver.model.quantities import Cpu, MilliGpu
from solver.model.workload import JobName, QueueName
from solver.policy.host_share import CpuQuota, MemoryQuota
from solver.policy.policy import Queue, Quota, policy_of
from tests.reconciler.api.conftest import H100, TOKEN, spec
from tests.reconciler.web.conftest import Console
from tests.solver.quota.test_hours import hours_of
from tests.solver.worlds import quota_of

WEB = Path(__file__).parents[3] / "reconciler" / "web"
EVIL = "<img src=x onerror=alert(1)>"


def test_every_answer_forbids_what_is_not_of_this_server(console: Console) -> None:
    with console.browser() as browser:
        for path in ("/", "/queues", "/sign-in", "/static/console.css", "/static/none.css"):
            headers = browser.get(path).headers
            assert "default-src 'none'; script-src 'self'; style-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"


def test_pages_are_behind_the_same_names_as_the_api(console: Console) -> None:
    paths = sorted(path.partition(" ")[2].replace("{name}", "console.css") for path in PAGES if path.startswith("GET"))
    with console.browser() as browser:
        found = {path: browser.get(path, headers={"host": "evil.example"}).status_code for path in paths}
    assert found == dict.fromkeys(paths, 403)


def test_the_cluster_in_figures(console: Console) -> None:
    console.site.store.jobs.submit(JobName("waits"), spec(2), "ada", console.clock.now(), "key")
    with console.browser() as browser:
        text = browser.get("/").text
    assert re.search(r"<b>8</b> GPUs on <b>2</b> nodes: <b>0</b> held, <b>8</b> free, <b>0</b> not usable", text)
    assert "<b>1</b> wait" in text


def test_the_queue_tree_with_each_queue_below_its_parent(console: Console) -> None:
    with console.browser() as browser:
        text = browser.get("/queues").text
    rows = re.findall(r'<tr class="depth-(\d)"><th scope="row">([^<]*)', text)
    assert rows == [("0", "org"), ("1", "other"), ("1", "team")]


def test_names_are_text(console: Console) -> None:
    """Policies forbid such names; a page would not become another by them."""
    queue = Queue(QueueName(EVIL), None, (Quota(H100, guaranteed=MilliGpu.gpus(4)),))
    console.site.policy = policy_of((queue,))
    console.site.told = msgspec.structs.replace(
        console.site.told,
        conditions=(msgspec.structs.replace(console.site.told.conditions[0], message=EVIL, status=False),),
    )
    with console.browser() as browser:
        for path in ("/", "/queues"):
            text = browser.get(path).text
            assert EVIL not in text
            assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_nothing_is_kept_of_pages_and_files_are_asked_for_by_what_they_are(console: Console) -> None:
    with console.browser() as browser:
        assert browser.get("/").headers["cache-control"] == "no-store"
        style = browser.get("/static/console.css", headers={"accept-encoding": "gzip"})
        assert style.headers["content-encoding"] == "gzip"
        assert style.text == (WEB / "static" / "console.css").read_text()
        again = browser.get("/static/console.css", headers={"if-none-match": style.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_a_page_needs_little(console: Console) -> None:
    """Bytes as they are sent, of all that a first look at a page loads."""
    with console.browser() as browser:
        text = browser.get("/queues").text
    assets = re.findall(r'(?:href|src)="/static/([^"]+)"', text)
    assert len(assets) <= 10
    assert sum(len(static_files()[name].packed) for name in assets) < 15_000


def test_modules_make_no_markup_of_text() -> None:
    for path in (WEB / "static").glob("*.js"):
        code = path.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "DOMParser", "eval(", "setHTML", "parseHTML"):
            assert word not in code, path.name


def test_one_module_takes_a_document_and_only_the_page_that_is_open() -> None:
    """Trusted Types let a request make a document; of any other address than its own, a page is to make none."""
    for path in (WEB / "static").glob("*.js"):
        code = path.read_text()
        is_allowed = path.name == "page-part.js"
        assert code.count("XMLHttpRequest") == is_allowed, path.name
        assert re.findall(r"\.open\((.*)\);", code) == ['"GET", location.pathname + location.search'] * is_allowed


def test_templates_have_no_script_or_style_of_their_own() -> None:
    """But for the one style of the page that stands alone, which its own policy names."""
    for path in (WEB / "templates").glob("*.html"):
        code = path.read_text()
        if path.name == "plan_file.html":
            code = code.replace("<style>{{ style }}</style>", "", 1)
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?! type=\"module\" src=\"/static/)", code), path.name
        assert "| safe" not in code


def test_what_is_not_ready_is_told(console: Console) -> None:
    console.site.access = AccessPolicy()
    with console.browser() as browser:
        assert browser.get("/static/none.css").status_code == 404
        assert "There is no file none.css." in browser.get("/static/none.css").text


def test_what_is_out_of_order_is_told_and_nothing_else(console: Console) -> None:
    ready = console.site.told.conditions[0]
    with console.browser() as browser:
        console.site.told = msgspec.structs.replace(
            console.site.told, conditions=(msgspec.structs.replace(ready, message="abc is in force"),)
        )
        assert "Out of order" not in browser.get("/").text
        stalled = msgspec.structs.replace(ready, type="Stalled", message="queue.yaml:3: no such queue")
        console.site.told = msgspec.structs.replace(console.site.told, conditions=(ready, stalled))
        assert "<b>Stalled</b>: queue.yaml:3: no such queue" in browser.get("/").text


def test_every_page_has_a_rule_and_every_rule_a_page(console: Console) -> None:
    file = UserTokenFile(console.tokens)
    identify = Authenticator(lambda: None, OidcVerifier(console.clock), file)
    keeper = SessionKeeper(console.site.store.sessions, console.clock, TOKEN, "alice", file, identify)
    flow = CodeFlow(identify, console.clock, ClientSecrets({}))
    routers = console_routers(console.site.services(), keeper, flow)
    routes = {
        f"{method} {route.path}"
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert routes == set(PAGES)


def test_cpu_and_memory_stand_below_the_tree_where_a_queue_has_a_quota_of_them(console: Console) -> None:
    with console.browser() as browser:
        assert "CPU and memory" not in browser.get("/queues").text
        rows = CpuQuota(Cpu(8000), Cpu(64_000), Cpu(2000), Cpu(16_000), "policies/team.yaml:7", True), MemoryQuota()
        queues = (Queue(QueueName("team"), host_quota=rows), Queue(QueueName("below"), QueueName("team")))
        console.site.policy = policy_of(queues)
        told, alone = (browser.get(path).text for path in ("/queues", "/queues/team"))
    table = told.partition("CPU and memory</h2>")[2].partition("</table>")[0]
    found = [re.sub(r"<[^>]*>", "|", row) for row in re.findall(r"<tr[^>]*data-key.*?</tr>", table, re.DOTALL)]
    cells = [[cell.strip() for cell in row.split("|") if cell.strip()] for row in found]
    assert cells == [
        ["team", "cpu", "0", "0", "8", "shared", "2", "0", "0", "64", "16", "0"],
        ["team", "memory", "0", "0", "0", "all", "0", "0", "none", "none", "0"],
        ["below", "cpu", "0", "0", "0", "all", "0", "0", "none", "none", "0"],
        ["below", "memory", "0", "0", "0", "all", "0", "0", "none", "none", "0"],
    ]
    assert "Its jobs hold <b>0</b> CPU cores now, <b>64</b> are the most" in alone


def test_a_queue_says_which_hours_of_its_quota_are_open(console: Console) -> None:
    hour = int(console.site.snapshot().time) // 3_600_000
    nights = hours_of("nights", [(hour, hour + 1)], quota_of("H100", most=3))
    queue = Queue(QueueName("team"), None, (Quota(H100, guaranteed=MilliGpu.gpus(2)),), hours=(nights,))
    console.site.policy = policy_of((queue,))
    with console.browser() as browser:
        assert f"hours nights until {nights.repeat.windows[0].until}, then none" in browser.get("/queues").text
