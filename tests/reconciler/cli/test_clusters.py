"""`--cluster`: which cluster of a repository a command is about, and what it says where that is not clear."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from solver.model.document import encode
from solver.model.quantities import Instant
from solver.model.snapshot import snapshot_of
from tests.reconciler.cli.conftest import Quorate
from tests.reconciler.documents.repository import POOL, queue
from tests.reconciler.gitops.source.origin import Origin

SHARED = {"policies/org.yaml": queue("org", "{}"), "policies/team.yaml": queue("team", "{parent: org}")}
TWO = {
    **SHARED,
    "cluster-state/eu/pool.yaml": POOL,
    "cluster-state/us/pool.yaml": POOL,
    "clusters/eu/policies/team.yaml": queue("team", "{parent: org, weight: 3}"),
}


@pytest.fixture
def repository(tmp_path: Path) -> Origin:
    made = Origin(tmp_path / "policy")
    made.commit(TWO)
    return made


@pytest.fixture
def snapshot_file(tmp_path: Path) -> Path:
    path = tmp_path / "snapshot.json"
    path.write_bytes(encode(snapshot_of(Instant(5), (), ())))
    return path


def test_validate_checks_all_clusters_or_the_one_that_is_named(quorate: Quorate, repository: Origin) -> None:
    assert quorate("validate", str(repository.folder)) == (0, "valid\n", "")
    repository.write({"clusters/eu/policies/team.yaml": queue("team", "{parent: nobody}")})
    ran = quorate("validate", str(repository.folder))
    assert (ran.exit_code, ran.out.splitlines()[0]) == (
        3,
        "clusters/eu/policies/team.yaml:4:16: error[unknown-parent]: there is no Queue nobody",
    )
    assert quorate("validate", str(repository.folder), "--cluster", "us").exit_code == 0
    assert quorate("validate", str(repository.folder), "--cluster", "eu").exit_code == 3


@pytest.mark.parametrize(
    ("cluster", "said"),
    [
        ((), "the repository has several clusters\n  Say which with --cluster: eu, us."),
        (("--cluster", "uss"), "there is no cluster uss\n  Did you mean us?"),
    ],
)
def test_commands_ask_which_cluster(
    quorate: Quorate, repository: Origin, snapshot_file: Path, cluster: tuple[str, ...], said: str
) -> None:
    folder = str(repository.folder)
    for command in (
        ("plan", "--repo", folder, "--snapshot", str(snapshot_file)),
        ("solve", "--policies", folder, "--snapshot", str(snapshot_file)),
        ("solve", "--policies", f"{folder}/policies", "--snapshot", str(snapshot_file)),
    ):
        ran = quorate(*command, *cluster)
        assert (ran.exit_code, ran.out) == (64, "")
        assert said in ran.err
    assert quorate("solve", "--policies", folder, "--snapshot", str(snapshot_file), "--cluster", "us").exit_code == 0


def test_a_plan_is_of_one_cluster(quorate: Quorate, repository: Origin, snapshot_file: Path) -> None:
    repository.git("switch", "--quiet", "--create", "more")
    repository.commit({"clusters/eu/policies/team.yaml": queue("team", "{parent: org, weight: 4}")})
    arguments = ("--repo", str(repository.folder), "--snapshot", str(snapshot_file), "-o", "json", "--cluster")
    changed = json.loads(quorate("plan", *arguments, "eu").out)["documents"]
    ((document, fields),) = ((change["document"], change["fields"]) for change in changed)
    assert (document, [(each["field"], each["before"], each["after"]) for each in fields]) == (
        "Queue team",
        [("weight", "3", "4")],
    )
    assert json.loads(quorate("plan", *arguments, "us").out)["documents"] == []


def test_a_plan_where_clusters_come_and_go(quorate: Quorate, repository: Origin, snapshot_file: Path) -> None:
    """What is new in the head is compared with nothing; a flat inventory is that of whichever cluster it becomes."""
    folder = repository.folder
    first = repository.git("rev-parse", "HEAD")
    repository.commit({"cluster-state/asia/pool.yaml": POOL})
    arguments = ("--repo", str(folder), "--snapshot", str(snapshot_file), "-o", "json", "--cluster", "asia")
    review = json.loads(quorate("plan", *arguments, "--base", first).out)
    added = [change["document"] for change in review["documents"] if change["change"] == "added"]
    assert added == ["NodePool big", "Queue org", "Queue team"]

    flat = Origin(folder.parent / "flat")
    flat.commit({**SHARED, "cluster-state/pool.yaml": POOL})
    flat.git("switch", "--quiet", "--create", "more")
    flat.git("rm", "--quiet", "cluster-state/pool.yaml")
    flat.commit({"cluster-state/eu/pool.yaml": POOL})
    ran = quorate("plan", "--repo", str(flat.folder), "--snapshot", str(snapshot_file), "--detailed-exitcode")
    assert ran.exit_code == 0, ran.err
