"""The agent's end of terminals: one after the other, as people come and go."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from reconciler.backends.baremetal.wire import Answer, Attach, Attached, Detach, Next, Shown
from reconciler.node.agent.order_handler import OrderHandler
from reconciler.node.agent.terminals import AttachedLines
from reconciler.node.local.terminals import LocalLine
from reconciler.supervisor.taskfiles import TERMINAL
from reconciler.supervisor.terminal import SHOWN
from solver.model.workload import JobName


def test_who_comes_after_somebody_who_has_let_go_sees_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line's socket has the number of the first one's, which was still being read when it was closed."""
    monkeypatch.chdir(tmp_path)
    heard: list[Answer] = []

    async def say(answer: Answer) -> None:
        heard.append(answer)

    async def come_and_go() -> None:
        deeds = SimpleNamespace(open_terminal=lambda *_: LocalLine(tmp_path, "the task"))
        lines = AttachedLines(cast("OrderHandler", deeds), say)
        for number in (1, 2):
            await lines.hear(Attach(number, JobName("job"), 1, "worker", 0))
            task, _ = supervisor.accept()
            with task:
                await lines.hear(Next(number))
                await asyncio.sleep(0.05)
                if number == 1:
                    await lines.hear(Detach(number))
                    continue
                task.send(SHOWN + b"hello")
                async with asyncio.timeout(60):
                    while len(heard) < 3:
                        await asyncio.sleep(0.01)
        lines.close()

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as supervisor:
        supervisor.bind(TERMINAL)
        supervisor.listen()
        asyncio.run(come_and_go())
    assert heard == [Attached(1), Attached(2), Shown(2, b"hello")]
