"""`quorate test`: what it prints for people and programs, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reconciler.documents.schemas import validator_of
from tests.reconciler.cli.conftest import Quorate


@pytest.fixture
def repository(quorate: Quorate, tmp_path: Path) -> Path:
    folder = tmp_path / "policy"
    quorate("init", str(folder))
    (folder / "policies" / "tests" / "ceilings.yaml").write_text(
        "apiVersion: quorate.dev/v1\nkind: PolicyTest\nmetadata: {name: team-a-has-a-ceiling}\nspec:\n"
        "  why: Team A may not take everything.\n  given:\n    jobs: [{name: three, count: 3, queue: team-a, gpus: 8}]\n"
        "  then:\n    - {queue: team-a, must: hold, atMost: 16}\n    - {job: three, must: start}\n"
    )
    return folder


def test_the_story_of_a_failing_test(quorate: Quorate, repository: Path) -> None:
    ran = quorate("test", str(repository))
    assert (ran.exit_code, ran.err) == (1, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("FAIL  team-a-has-a-ceiling  (1 round, ")
    at = "      policies/tests/ceilings.yaml:10:7: 1 of 3 jobs: three-3 never starts: it still waits at 0s"
    assert lines[1] == at
    assert lines[2].startswith("          at 0s three-3 was told: ")
    assert "quota-max: queue team-a holds 16 of max 16 H100-SXM5-80GB (policies/queues/team-a.yaml:10)" in lines[2]
    assert lines[3].startswith("pass  team-b-gets-back-what-it-lent  (3 rounds, ")
    assert lines[4].startswith("1 passed, 1 failed, in ")


def test_programs_read_it_as_json_and_as_junit(quorate: Quorate, repository: Path) -> None:
    report = json.loads(quorate("test", str(repository), "-o", "json").out)
    assert list(validator_of("PolicyTestReport").iter_errors(report)) == []
    assert [(test["name"], test["passed"], test["line"]) for test in report["tests"]] == [
        ("team-a-has-a-ceiling", False, 3),
        ("team-b-gets-back-what-it-lent", True, 6),
    ]
    cases = ElementTree.fromstring(quorate("test", str(repository), "-o", "junit").out).findall(".//testcase")
    assert [(case.get("name"), case.find("failure") is not None) for case in cases] == [
        ("team-a-has-a-ceiling", True),
        ("team-b-gets-back-what-it-lent", False),
    ]


def test_tests_are_chosen_by_their_names(quorate: Quorate, repository: Path) -> None:
    assert quorate("test", str(repository), "-k", "lent").exit_code == 0
    ran = quorate("test", str(repository), "-k", "team-b-gets-back-what-it-lnt")
    assert (ran.exit_code, ran.out) == (1, "")
    assert "Did you mean team-b-gets-back-what-it-lent?" in ran.err


def test_an_invalid_policy_is_tested_by_nobody(quorate: Quorate, repository: Path) -> None:
    test = repository / "policies" / "tests" / "ceilings.yaml"
    test.write_text(test.read_text().replace("queue: team-a, gpus", "queue: team-c, gpus"))
    for command in ("test", "validate"):
        ran = quorate(command, str(repository))
        assert ran.exit_code == 3
        assert "there is no Queue team-c" in ran.out + ran.err
    for file in (repository / "policies" / "tests").iterdir():
        file.unlink()
    ran = quorate("test", str(repository))
    assert ran.exit_code == 1
    assert "there are no policy tests" in ran.err


def test_of_several_clusters_one_is_tested(quorate: Quorate, repository: Path) -> None:
    machines = (repository / "cluster-state" / "machines.yaml").read_text()
    (repository / "cluster-state" / "machines.yaml").unlink()
    for cluster, nodes in (("east", 2), ("west", 3)):
        (repository / "cluster-state" / cluster).mkdir()
        text = machines.replace("count: 2", f"count: {nodes}")
        (repository / "cluster-state" / cluster / "machines.yaml").write_text(text)
    own = repository / "clusters" / "west" / "policies" / "tests"
    own.mkdir(parents=True)
    test = (repository / "policies" / "tests" / "ceilings.yaml").read_text()
    (own / "ceilings.yaml").write_text(test.replace("count: 3", "count: 2"))
    assert quorate("validate", str(repository)) == (0, "valid\n", "")
    assert quorate("test", str(repository), "-k", "ceiling").exit_code == 64
    assert quorate("test", str(repository), "-k", "ceiling", "--cluster", "east").exit_code == 1
    assert quorate("test", str(repository), "-k", "ceiling", "--cluster", "west").exit_code == 0
