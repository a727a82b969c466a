"""A real browser before the console of a real server. It fails a test by itself: by what its pages may not do, or fail at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reconciler.api.conftest import site
from tests.reconciler.web.conftest import Console, console

__all__ = ["console", "site"]

PICTURES = Path(__file__).parents[2] / "build" / "console"
"""What the tests saw, for people to look at."""

SETTLED = (
    "html:is([data-fare=lost], [data-fare=refused], [data-fare=over], [data-fare=paused]), "
    "html[data-fare=live] main:is([data-live=''], [data-updates])"
)
"""It can't follow, has nothing that changes, or has been brought up to date once."""

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Names of another machine, for a browser: over plain HTTP it takes no cookie of them.
    "--host-resolver-rules=MAP *.example 127.0.0.1",
)


class Browser:
    """One window. `troubles`: violations of the Content-Security-Policy, errors of modules, dialogs."""

    def __init__(self, window: Any, url: str) -> None:
        self.page, self.url, self.troubles = window, url, list[str]()
        window.on(
            "console", lambda told: self.troubles.append(told.text) if told.type in ("error", "warning") else None
        )
        window.on("pageerror", lambda error: self.troubles.append(str(error)))
        window.on("dialog", self._dismiss)

    def _dismiss(self, dialog: Any) -> None:
        self.troubles.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self, path: str) -> None:
        """Go to a page, until all of it has come."""
        self.page.goto(self.url + path)
        self.settle()

    def settle(self) -> None:
        """Wait until a page follows what happens, and has caught up; its stream stays open, so that the network is never idle."""
        if self.page.locator("#live").count():
            self.page.wait_for_selector(SETTLED)

    def sign_in(self, token: str) -> None:
        """Type the token where the form is."""
        self.page.get_by_label("Token").fill(token)
        self.press("Sign in")

    def press(self, button: str) -> None:
        """A button of a form, until the page has come that follows."""
        with self.page.expect_navigation():
            self.page.get_by_role("button", name=button).click()
        self.settle()

    def follow(self, role: str, name: str, *, exact: bool = False) -> None:
        """The first link or button of a name, until the page has come that it leads to."""
        with self.page.expect_navigation():
            self.page.get_by_role(role, name=name, exact=exact).first.click()
        self.settle()

    def picture(self, name: str) -> None:
        """Keep what is seen."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="`make test-console` installs what drives a browser")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture
def browser(chromium: Any, console: Console) -> Iterator[Browser]:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    window = Browser(context.new_page(), console.url)
    yield window
    context.close()
    assert window.troubles == []
