"""The page of `quorate plan --html`, opened from a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reconciler.analysis.reports.paths import UNKNOWN, paths_of
from reconciler.cli.inputs import read_policies, read_snapshot_file
from reconciler.gitops.review.comparison import review
from reconciler.gitops.review.side import ReviewSide
from reconciler.model.review_findings import RackUse
from reconciler.web.plan_page import plan_file
from solver.model.quantities import MilliGpu
from solver.model.workload import JobName
from tests.console.conftest import PICTURES
from tests.reconciler.analysis.reports.reviews import of_strangers
from tests.reconciler.analysis.reports.strangers import HOSTILE

pytestmark = pytest.mark.console

ROOT = Path(__file__).parents[2]
MARKUP = ("<img src=x onerror=alert(1)>", "</style><script>alert(2)</script>", "<svg onload=alert(3)>", *HOSTILE)


@pytest.fixture(scope="session")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More GPUs for one team of a busy cluster of 4,000, and fewer for another."""
    folder = tmp_path_factory.mktemp("plan")
    shutil.copytree(ROOT / "hack" / "busy", folder / "head")
    for queue, before, after in (
        ("vision", "guaranteed: 384", "guaranteed: 480"),
        ("language", "guaranteed: 640", "guaranteed: 544, max: 576"),
    ):
        written = folder / "head" / "policies" / "queues" / f"research-{queue}.yaml"
        assert before in written.read_text()
        written.write_text(written.read_text().replace(before, after))
    base, head = read_policies(ROOT / "hack" / "busy"), read_policies(folder / "head")
    snapshot = read_snapshot_file(ROOT / "cluster-state" / "examples" / "busy-4000.json.gz")
    sides = ReviewSide("main", "a" * 40, base), ReviewSide("more-for-vision", "b" * 40, head)
    file = folder / "plan.html"
    file.write_text(plan_file(review(snapshot, *sides, None), paths_of(base, head)), "utf-8")
    return file


@pytest.fixture
def window(chromium: Any) -> Iterator[Any]:
    """Whatever its page may not do, or fails at, ends the test; and so does whatever it asks for beside itself."""
    context = chromium.new_context(viewport={"width": 1280, "height": 1100})
    opened, troubles = context.new_page(), list[str]()
    opened.on("console", lambda told: troubles.append(told.text))
    opened.on("pageerror", lambda error: troubles.append(str(error)))

    def dismiss(dialog: Any) -> None:
        troubles.append(dialog.message)
        dialog.dismiss()

    opened.on("dialog", dismiss)
    opened.on("request", lambda asked: None if asked.is_navigation_request() else troubles.append(asked.url))
    yield opened
    context.close()
    assert troubles == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 2560)])
def test_everybody_can_read_it(window: Any, page_file: Path, scheme: str, width: int) -> None:
    """By the rules of axe-core, which is let in past the page's policy; and nothing is to be scrolled for sideways."""
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    window.emulate_media(color_scheme=scheme)
    window.set_viewport_size({"width": width, "height": 1100})
    window.goto(page_file.as_uri())
    found = axe.run(window).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"][:3]]) for each in found] == []
    assert window.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert window.evaluate("getComputedStyle(document.querySelector('.racks')).display") == "flex"
    PICTURES.mkdir(parents=True, exist_ok=True)
    window.locator("#queues").scroll_into_view_if_needed()
    window.evaluate("document.querySelector('#queues').closest('section').scrollIntoView()")
    window.screenshot(path=PICTURES / f"plan-{scheme}-{width}.png")


def test_names_of_others_are_text(window: Any, tmp_path: Path) -> None:
    for number, name in enumerate(MARKUP):
        rack = RackUse(name, name, MilliGpu(8), MilliGpu(8), MilliGpu(0), MilliGpu(8), (JobName(name),))
        found = msgspec.structs.replace(of_strangers([name]), racks=(rack,))
        file = tmp_path / f"{number}.html"
        file.write_text(plan_file(found, UNKNOWN, name), "utf-8")
        window.goto(file.as_uri())
        assert window.locator("script, img, [onload], [onerror]").count() == 0
        assert window.locator("style").count() == 1


def test_what_gets_into_it_runs_no_script_and_wears_no_style(window: Any, page_file: Path, tmp_path: Path) -> None:
    """Its own policy, and not the escaping alone."""
    told, troubles = "<p id=in style='color:red'>in</p><script>document.title='ran'</script>", list[str]()
    file = tmp_path / "tampered.html"
    file.write_text(page_file.read_text("utf-8").replace("</main>", f"{told}</main>"), "utf-8")
    fresh = window.context.new_page()
    fresh.on("console", lambda said: troubles.append(said.text))
    fresh.goto(file.as_uri())
    assert fresh.title() == "Plan · Quorate"
    assert fresh.evaluate("getComputedStyle(document.querySelector('#in')).color") != "rgb(255, 0, 0)"
    assert len(troubles) == 2
