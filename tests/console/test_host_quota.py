"""CPU and memory of queues in a real browser: their table follows the passes, and everybody can use it."""

from __future__ import annotations

from typing import Any

import pytest

from solver.model.quantities import Cpu, Memory
from solver.model.workload import QueueName
from solver.policy.host_share import CpuQuota, MemoryQuota
from solver.policy.policy import Queue, policy_of
from tests.console.conftest import Browser
from tests.console.test_hands import texts
from tests.reconciler.api.conftest import TOKEN
from tests.reconciler.web.conftest import Console

pytestmark = pytest.mark.console

TABLE = "section[aria-labelledby=host] tbody"


def put_quota(console: Console) -> None:
    """Two queues, of which the first shares its cores with the one below it."""
    rows = CpuQuota(Cpu(48_000), Cpu(64_000), Cpu(24_000), Cpu(16_000), shared=True), MemoryQuota(Memory(2**38))
    own = (CpuQuota(Cpu(8_000)),)
    queues = (Queue(QueueName("org"), host_quota=rows), Queue(QueueName("team"), QueueName("org"), host_quota=own))
    console.site.policy = policy_of(queues)


def test_the_table_is_there_with_the_first_quota(browser: Browser, console: Console) -> None:
    browser.open("/queues")
    browser.sign_in(TOKEN)
    browser.open("/queues")
    assert not browser.page.locator("#host").count()
    put_quota(console)
    browser.open("/queues")
    assert texts(browser, f"{TABLE} tr:first-child td")[3:] == [
        *("0", "48 shared", "24", "0", "0", "64", "16", "0"),
    ]
    assert texts(browser, f"{TABLE} td:nth-child(2)") == ["cpu", "memory", "cpu", "memory"]
    assert browser.page.locator(f"{TABLE} svg .b-guaranteed").count() == 4
    browser.page.locator("#host").scroll_into_view_if_needed()
    browser.picture("queues-host")
    browser.open("/queues/org")
    assert any("of memory now" in told for told in texts(browser, ".figures"))


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1280)])
def test_everybody_can_use_it(browser: Browser, console: Console, scheme: str, width: int) -> None:
    axe: Any = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    put_quota(console)
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.set_viewport_size({"width": width, "height": 800})
    browser.open("/queues")
    browser.sign_in(TOKEN)
    browser.open("/queues")
    found = axe.run(browser.page).response["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    assert browser.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
