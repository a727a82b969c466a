"""Whatever is wrong with a file, an import says where, or leaves it out and says so: no other error ends it."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from textwrap import dedent
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from reconciler.importers.conversion import convert
from reconciler.importers.inventory import nodes_of
from reconciler.importers.slurm.jobs import QueueNaming, SlurmQueue
from reconciler.importers.source import SourceFile
from reconciler.importers.system import ImportSource
from reconciler.model.problem import InvalidDocumentsError
from solver.model.quantities import Instant
from tests.drawn import worlds
from tests.reconciler.importers import test_kai, test_kueue, test_slurm, test_volcano, test_yunikorn
from tests.reconciler.importers.imports import kube_node

LOCAL = "---\nkind: LocalQueue\nmetadata: {name: lq, namespace: cats}\nspec: {clusterQueue: language}\n"
YAML = {
    "kueue": dedent(test_kueue.TWO_TEAMS) + LOCAL + "---\n" + dedent(test_kueue.TOPOLOGY),
    "kai": test_kai.queue("top", "{quota: 8, overQuotaWeight: 2}", "  preemptMinRuntime: 10m\n"),
    "volcano": dedent(test_volcano.CAPACITY) + test_volcano.hierarchy("root/eng/prod", "1/2/8")
    + test_volcano.queue("a", "{deserved: {nvidia.com/gpu: 8}, parent: root}"),
    "yunikorn": yaml.safe_load(dedent(test_yunikorn.GPUS))["data"]["queues.yaml"],
}  # fmt: skip
ODD = st.sampled_from([None, True, 0, -1, 1.5, "", "x", "1Gi", [], {}, ["a"], {"a": 1}, [None], [{"name": 5}]])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with a key or index in it."""
    found = []
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        found += [(value, key), *places(value[key])]
    return found


@st.composite
def broken(draw: st.DrawFn, text: str) -> str:
    """Documents in which one to three values are something else."""
    documents = list(yaml.safe_load_all(text))
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(places(documents)))
        container[key] = deepcopy(draw(ODD))
    return yaml.safe_dump_all(documents)


def attempt(system: str, *files: tuple[str, str]) -> None:
    types = {"h100": "H100", "a100": "A100", "close": "H100"}
    sources = [SourceFile(name, text.encode()) for name, text in files]
    try:
        found = convert(system, ImportSource(sources, types=types, only_type="H100"))
    except InvalidDocumentsError:
        return
    assert found.files


@pytest.mark.parametrize("system", YAML)
def test_a_document_with_something_else_in_it(system: str) -> None:
    @worlds(160)
    @given(broken(YAML[system]))
    def holds(text: str) -> None:
        attempt(system, ("file.yaml", text))

    holds()


@worlds(160)
@given(st.data())
def test_lines_of_slurm_with_something_else_in_them(data: st.DataObject) -> None:
    files = []
    for name, text in test_slurm.FILES.items():
        lines = dedent(text).splitlines()
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(lines) - 1))
            cut = data.draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:cut] + data.draw(
                st.sampled_from(["", "|", "=", "[", "]", " ", '"', "#", ",x", "-1", "ü"])
            )
        files.append((name, "\n".join(lines)))
    attempt("slurm", *files)


@worlds(160)
@given(st.data())
def test_nodes_and_jobs_with_something_else_in_them(data: st.DataObject) -> None:
    kube = {"items": [kube_node("n1", 8)]}
    slurm = {"nodes": [{"name": "n1", "gres": "gpu:h100:8", "cpus": {"set": True, "number": 8}, "state": ["IDLE"]}]}
    queue = {"jobs": [{"job_id": 1, "job_state": ["RUNNING"], "nodes": "n[1-2]", "gres_detail": ["gpu:8(IDX:0-7)"],
                       "tres_req_str": "cpu=1,gres/gpu=8", "array_task_string": "1-3%2", "node_count": 1}]}  # fmt: skip
    for document in (kube, slurm, queue):
        container, key = data.draw(st.sampled_from(places(document)))
        container[key] = deepcopy(data.draw(ODD))
        file = SourceFile("file.json", json.dumps(document).encode())
        with suppress(InvalidDocumentsError):
            if document is queue:
                SlurmQueue({}, QueueNaming({}, {})).snapshot(file, Instant(0))
            else:
                nodes_of(file)
