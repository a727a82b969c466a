"""A child that is kept: begun when it is needed, and never once it is not wanted any more."""

from __future__ import annotations

import sys

import pytest

from reconciler.control.optimiser.child_process import ChildProcess, KeptChild
from reconciler.control.optimiser.wire import WireError

GREETS = (
    sys.executable,
    "-c",
    "import sys\n"
    "from reconciler.control.optimiser.wire import READY, write_frame\n"
    "write_frame(sys.stdout.buffer, READY)\n"
    "sys.stdin.read()\n",
)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[ChildProcess]:
    """All children that are begun."""
    children, begin = list[ChildProcess](), ChildProcess.begin

    def noted(command: tuple[str, ...]) -> ChildProcess:
        children.append(begin(command))
        return children[-1]

    monkeypatch.setattr(ChildProcess, "begin", noted)
    return children


def test_it_is_begun_once_and_anew_after_it_ended(begun: list[ChildProcess]) -> None:
    child = KeptChild(GREETS, "test")
    first = child.submit(child.begun).result()
    assert child.submit(child.begun).result() is first
    child.submit(child.end).result()
    assert first.process.returncode is not None
    assert child.submit(child.begun).result() is not first
    child.close()
    assert [each.process.returncode for each in begun] == [-9, -9]


def test_one_that_begins_when_it_is_not_wanted_any_more_is_ended(begun: list[ChildProcess]) -> None:
    child = KeptChild(GREETS, "test")
    child.close()
    with pytest.raises(WireError, match="is not wanted any more"):
        child.begun()
    assert [each.process.returncode for each in begun] == [-9]


def test_one_that_does_not_greet_is_ended(begun: list[ChildProcess]) -> None:
    child = KeptChild((sys.executable, "-c", "print('hello, there is no greeting in this')"), "test")
    with pytest.raises(WireError):
        child.submit(child.begun).result()
    assert begun[0].process.returncode is not None
    child.close()
