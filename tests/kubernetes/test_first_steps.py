"""The section "Try it" of docs/kubernetes.md, word for word: from nothing to a bound gang, on an API server without Quorate."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import ComponentMissingError, found, place
from reconciler.kubernetes.objects.resource import PODS
from tests.e2e.control_plane import until
from tests.e2e.first_steps import ROOT, Terminals, console_blocks, terminals
from tests.kubernetes.sessions import ADMINS, REAL, session
from tests.kubernetes.test_run import gpu_nodes

pytestmark = REAL
SECTION = (ROOT / "docs/kubernetes.md").read_text().split("## Try it\n")[1].split("\n## ")[0]


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with running(found(place()), folder) as cluster:
        yield cluster


@pytest.fixture
def shells(empty: Cluster, tmp_path: Path) -> Iterator[Terminals]:
    """Of an administrator."""
    try:
        kubectl = found(place(), ("kubectl",)).path("kubectl")
    except ComponentMissingError as error:
        pytest.skip(str(error))
    folder = tmp_path / "checkout"
    (folder / ".kube").mkdir(parents=True)
    shutil.copy(empty.kubeconfig("admin", ADMINS), folder / ".kube/config")
    with terminals(folder, PATH=f"{kubectl.parent}:{ROOT / '.venv/bin'}:/usr/bin:/bin") as opened:
        yield opened


def test_a_gang_is_bound_by_following_the_page(empty: Cluster, shells: Terminals) -> None:
    async def story() -> None:
        async with session(empty) as api, gpu_nodes(api, 1, "try-"):
            await asyncio.to_thread(follow, shells)
            pods = await api.get(PODS.path("default"), dict[str, Any])
            assert {pod["spec"].get("nodeName") for pod in pods["items"]} == {"try-0"}
            assert len(pods["items"]) == 2

    asyncio.run(story())


def test_no_command_of_the_page_is_left_out() -> None:
    assert console_blocks((ROOT / "docs/kubernetes.md").read_text()) == console_blocks(SECTION)


def follow(shells: Terminals) -> None:
    first, second = console_blocks(SECTION)
    init, namespace, serve = first.splitlines()
    shells.run(init)
    shells.run(namespace)
    shells.begin(serve)
    create, why = second.strip().rsplit("\n", 1)
    shells.run(create)
    until("it runs", lambda: "running" in shells.run(f"{why} || true"))
