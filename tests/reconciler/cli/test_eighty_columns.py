"""docs/tables.md: what commands show on a terminal of 80 columns is what comes, no line is longer, and no name is broken."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

from reconciler.api.server import ApiServer
from reconciler.cli.inputs import read_policies
from reconciler.lifecycle.jobs.backend_reports import AttemptReport, BackendReports
from reconciler.protocols.backend import MemoryUse, Progress, TaskStatus
from solver.model.cluster import NodeName
from solver.model.document import encode
from solver.model.quantities import Memory
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup
from tests.house.tracked import ROOT
from tests.reconciler.api import conftest as api
from tests.reconciler.api.conftest import NOW, Site
from tests.reconciler.cli.conftest import Now, Quorate, on
from tests.reconciler.gitops.source.origin import Origin

WIDTH = 80
BLOCK = re.compile(r"^```console\n\$ (quorate .+?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CAPTURES = dict(BLOCK.findall((ROOT / "docs/tables.md").read_text()))
HEAD = "apiVersion: quorate.dev/v1\nkind: "
TYPE = "H100-SXM5-80GB"
FILES = {
    "policies/org.yaml": f"{HEAD}Queue\nmetadata: {{name: org}}\nspec: {{quota: [{{gpuType: {TYPE}, guaranteed: 32}}]}}\n",
    **{
        f"policies/{name}.yaml": f"{HEAD}Queue\nmetadata: {{name: {name}}}\n"
        f"spec:\n  parent: org\n  quota:\n    - {{gpuType: {TYPE}, guaranteed: {guaranteed}, max: {most}}}\n"
        for name, guaranteed, most in (("product-ranking", 8, 12), ("research-language-models", 16, 24))
    },
    "cluster-state/machines.yaml": f"{HEAD}NodePool\nmetadata: {{name: h100-a}}\n"
    f"spec: {{gpuType: {TYPE}, gpusPerNode: 8, cpu: 96, memory: 1Ti, nodes: {{prefix: h100-a-, count: 4}}}}\n",
}
LONG_NAMES = ("experiment-with-a-long-name-41", "research-language-models", "hyperparameter-sweep-of-ranking-3")


@pytest.fixture
def repository(tmp_path: Path) -> Origin:
    """A policy, and a branch with more GPUs for ranking."""
    made = Origin(tmp_path / "policy")
    made.commit(FILES)
    made.git("switch", "--quiet", "--create", "more-for-ranking")
    made.commit({"policies/product-ranking.yaml": FILES["policies/product-ranking.yaml"].replace("max: 12", "max: 16")})
    made.git("switch", "--quiet", "main")
    return made


@pytest.fixture(autouse=True)
def world(
    quorate: Quorate, site: Site, at_server: ApiServer, now: Now, repository: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three jobs that run and two that wait, on four nodes of eight GPUs, with names as long as people give them."""
    compiled = read_policies(repository.folder)
    nodes = tuple(sorted(compiled.nodes, key=lambda node: node.name))
    monkeypatch.setattr(api, "NODES", nodes)
    monkeypatch.setattr(api, "POLICY", compiled.policy)
    monkeypatch.setattr(api, "H100", TYPE)
    site.policy, site.revision = compiled.policy, "fcc053dbfc45"
    for name, queue, tasks, gpus in (
        ("experiment-with-a-long-name-41", "research-language-models", 2, 8),
        ("hyperparameter-sweep-of-ranking-3", "product-ranking", 1, 8),
        ("notebook", "product-ranking", 1, 1),
        ("ranking-pretraining-2026-11", "product-ranking", 1, 4),
        ("evaluate", "research-language-models", 1, 8),
    ):
        spec = JobSpec(QueueName(queue), (TaskGroup("worker", tasks, Shape(gpus=gpus)),), command=("true",))
        site.store.jobs.submit(JobName(name), spec, "ada", NOW, "")
    whole = [on(node, *range(8)) for node in nodes]
    site.bind("experiment-with-a-long-name-41", whole[0], msgspec.structs.replace(whole[1], index=1))
    site.bind("hyperparameter-sweep-of-ranking-3", whole[2])
    site.bind("notebook", on(nodes[3], 0))
    site.sighted = BackendReports(
        {}, {(JobName("experiment-with-a-long-name-41"), 1): AttemptReport((task(0), task(1)))}
    )
    now.advance(3_900)
    for name, value in (("TERM", "xterm"), ("COLUMNS", str(WIDTH)), ("NO_COLOR", "1")):
        monkeypatch.setenv(name, value)


def task(index: int) -> TaskStatus:
    """One of the tasks that say how far they are."""
    job, node = JobName("experiment-with-a-long-name-41"), NodeName(f"h100-a-{index + 1}")
    memory = MemoryUse(Memory(48 * 2**30), Memory(64 * 2**30))
    return TaskStatus(job, 1, "worker", index, node, "running", NOW, progress=Progress(41_200, 3.7, NOW), memory=memory)


@pytest.mark.parametrize("command", CAPTURES)
def test_the_page_shows_what_comes(
    quorate: Quorate, command: str, site: Site, repository: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, *arguments = command.split()
    if arguments[0] == "plan":
        (tmp_path / "snapshot.json").write_bytes(encode(site.snapshot()))
        arguments += ["--snapshot", str(tmp_path / "snapshot.json"), "--repo", str(repository.folder)]
    if arguments[0] == "top":
        monkeypatch.setattr("reconciler.cli.top.show_again", show_once)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    site.record_round()
    shown = plain(quorate(*arguments).out)
    assert program == "quorate"
    assert shown == CAPTURES[command]
    for line in shown.splitlines():
        assert len(line) <= WIDTH or "  " not in line.strip(), f"a table that does not fit: {line}"
    assert not re.search(r"experi\s*\n|\n\s*ment-with|hyperparameter-\s*\n|\n\s*sweep-of", shown), "a broken name"


def test_the_page_has_every_command_that_the_screens_are_of() -> None:
    assert [command.split()[1] for command in CAPTURES] == ["get", "why", "top", "queues", "nodes", "plan"]


def show_once(parts: object) -> None:
    """What a terminal shows first, before it is shown anew."""
    from reconciler.cli.tables import show

    show(parts())  # type: ignore[operator]


def plain(text: str) -> str:
    """Without bold, colour and spaces at ends of lines, and with commits that are the same on every machine."""
    shown = re.sub(r"\b[0-9a-f]{12}\b", "fcc053dbfc45", re.sub("\x1b[^m]*m", "", text))
    return re.sub(r" +$", "", shown, flags=re.MULTILINE)
