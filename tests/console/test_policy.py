"""The policy in a browser: read, gone through line by line, and a held revision accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hack.busy_cluster import __file__ as busy
from solver.model.workload import JobName
from tests.console.conftest import Browser
from tests.reconciler.api.conftest import TOKEN, spec
from tests.reconciler.web.conftest import Console
from tests.reconciler.web.test_policy_pages import Branch

pytestmark = pytest.mark.console

QUEUE_FILE = "policies/queues/research-vision.yaml"


@pytest.fixture
def branch(console: Console, tmp_path: Path) -> Branch:
    """The policy of a busy cluster, changed once, with a change that is held."""
    made, policies = Branch(console, tmp_path), Path(busy).parent / "busy"
    files = {path.relative_to(policies).as_posix(): path.read_text() for path in policies.rglob("*.yaml")}
    made.put_in_force(made.commit(files))
    console.site.record_round()
    text = files[QUEUE_FILE]
    assert "guaranteed: 384" in text
    made.put_in_force(made.commit({QUEUE_FILE: text.replace("guaranteed: 384", "guaranteed: 480")}))
    console.site.store.jobs.submit(JobName("finetune"), spec(2), "ada", console.clock.now(), "key")
    console.site.record_round()
    made.hold(made.commit({QUEUE_FILE: text.replace("guaranteed: 384", "guaranteed: 900")}))
    return made


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_everybody_can_use_it(browser: Browser, console: Console, branch: Branch, scheme: str, width: int) -> None:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 1000})
    browser.open("/policy")
    browser.sign_in(TOKEN)
    assert branch.origin.folder.is_dir()
    in_force = console.site.revision
    for name, path in (
        ("policy", "/policy"),
        ("policy-document", f"/policy/documents/{QUEUE_FILE}#L8"),
        ("policy-revision", f"/policy/revisions/{in_force}"),
    ):
        browser.open(path)
        browser.picture(f"{name}-{scheme}-{width}")
        found = axe.run(browser.page).response["violations"]
        assert [(each["id"], [node["html"] for node in each["nodes"][:3]]) for each in found] == [], path
        assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), path


def test_a_line_is_shown_by_its_address(browser: Browser, branch: Branch) -> None:
    assert branch.origin.folder.is_dir()
    browser.open("/policy")
    browser.sign_in(TOKEN)
    browser.page.get_by_role("link", name=QUEUE_FILE, exact=True).click()
    browser.page.wait_for_url(f"**/policy/documents/{QUEUE_FILE}")
    browser.page.get_by_role("link", name="Line 8", exact=True).click()
    browser.page.wait_for_url("**#L8")
    assert "guaranteed: 480" in str(browser.page.locator(".l:target").text_content())


def test_a_held_revision_is_accepted_once_that_was_confirmed(
    browser: Browser, console: Console, branch: Branch
) -> None:
    assert branch.origin.folder.is_dir()
    browser.open("/policy")
    browser.sign_in(TOKEN)
    assert not browser.page.get_by_label("Reason").is_visible()
    browser.page.get_by_text("Accept it…").click()
    browser.page.get_by_label("Reason").fill("meant so")
    held = console.site.told.last_attempted_revision
    browser.press(f"Accept {held[:12]}")
    browser.page.wait_for_selector("text=alice has accepted it: meant so")
    assert [each.commit for each in console.site.store.following.approvals()] == [held]
