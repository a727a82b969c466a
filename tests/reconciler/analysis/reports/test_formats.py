"""Problems for repository hosts and CI systems: each format as its readers want it, whatever the messages are."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.analysis.reports.formats import FORMATS, problems_as
from reconciler.analysis.reports.paths import UNKNOWN
from reconciler.analysis.reports.problems import SEVERITIES
from reconciler.analysis.reports.review_problems import review_problems
from reconciler.model.problem import Problem, Severity
from tests.reconciler.analysis.reports.reviews import PATHS, RANKING, job, moved_quota, of_strangers, unchanged
from tests.reconciler.analysis.reports.strangers import strangers

GITHUB = """\
::error file=policies/scheduling.yaml,line=9,col=1,title=guardrail-max-evicted-gpu-hours::\
13.8 GPU-hours of work would be lost, at most 10. Change less at once.
::warning file=policies/queues/ranking.yaml,line=3,col=1,title=gives-up-work::job bert of queue research/vision would give up \
32 of 32 GPUs for finetune, asked at 2026-11-20T08:00:00Z with a grace of 5m; 12.5 GPU-hours of work lost.
::warning file=policies/queues/vision.yaml,line=7,col=1,title=gives-up-work::job resnet of queue research/vision would give up \
8 of 16 GPUs, asked at 2026-11-20T10:00:00Z with a grace of 5m; 1.2 GPU-hours of work lost.
::notice file=policies/queues/vision.yaml,line=7,col=1,title=converges::queue research/vision holds 96 of max 64 \
H100-SXM5-80GB; jobs are evicted from 2026-11-20T09:00:00Z on.
1 error, 2 warnings, 1 notice
"""
ERROR = Problem("policies/a b.yaml", 7, 23, "unknown-field", "there is no field 'maks'", "Did you mean max?")
WARNING = Problem("policies/b.yaml", 2, 1, "not-read", "nothing reads this file", severity="warning")
JUNIT = """\
<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="quorate validate" tests="2" failures="1" errors="0">
  <testsuite name="quorate validate" tests="2" failures="1" errors="0">
    <testcase classname="policies/a b.yaml:7:23" name="unknown-field">
      <failure message="there is no field 'maks'. Did you mean max?">there is no field 'maks'. Did you mean max?
policies/a b.yaml:7:23</failure>
    </testcase>
    <testcase classname="policies/b.yaml:2:1" name="warning[not-read]: nothing reads this file." />
  </testsuite>
</testsuites>
"""


def written(output: str, *problems: Problem) -> str:
    return problems_as(output, "quorate validate", problems)


def results(*problems: Problem) -> list[Any]:
    (run,) = json.loads(written("sarif", *problems))["runs"]
    return list(run["results"])


def test_what_a_review_finds_stands_at_the_change_that_brings_it_about() -> None:
    assert problems_as("github", "quorate plan", review_problems(moved_quota(), PATHS)) == GITHUB


def test_a_job_that_becomes_inadmissible_is_a_notice() -> None:
    found = msgspec.structs.replace(unchanged(), jobs=(job("sweep", RANKING, 8, "waits", "inadmissible"),))
    (problem,) = review_problems(found, PATHS)
    assert (problem.severity, problem.code, problem.message) == (
        "notice", "never-admitted", "job sweep of queue product/ranking could never start"
    )  # fmt: skip


def test_github_shows_ten_of_each_kind_and_says_how_many_more_there_are() -> None:
    problems = [
        Problem("a.yaml", line, 1, "c", "m", severity=severity)
        for severity, number in zip(SEVERITIES, (15, 12, 3), strict=True)
        for line in range(1, number + 1)
    ]
    lines = written("github", *problems).splitlines()
    assert [line.split(" ")[0] for line in lines[:-1]] == ["::error"] * 10 + ["::warning"] * 10 + ["::notice"] * 3
    assert lines[-1] == (
        "15 errors, 12 warnings, 3 notices; 7 of them without an annotation: GitHub shows 10 of each kind"
    )


def test_junit_fails_for_errors_alone() -> None:
    assert written("junit", WARNING, ERROR) == JUNIT
    assert '<testcase classname="quorate validate" name="no problems" />' in written("junit")


def test_gitlab() -> None:
    (first, second) = json.loads(written("gitlab", WARNING, ERROR))
    assert re.fullmatch("[0-9a-f]{64}", first.pop("fingerprint"))
    assert first == {
        "description": "there is no field 'maks'. Did you mean max?",
        "check_name": "unknown-field",
        "severity": "major",
        "location": {"path": "policies/a b.yaml", "lines": {"begin": 7}},
    }
    assert second["severity"] == "minor"
    assert json.loads(written("gitlab")) == []


def test_sarif_has_what_its_schema_and_github_require() -> None:
    log = json.loads(written("sarif", WARNING, ERROR))
    assert (log["version"], log["$schema"].rpartition("/")[2]) == ("2.1.0", "sarif-schema-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "quorate"
    assert [rule["id"] for rule in rules] == ["not-read", "unknown-field"]
    assert all(rule[text]["text"] for rule in rules for text in ("shortDescription", "fullDescription", "help"))
    first, second = run["results"]
    assert [rules[result["ruleIndex"]]["id"] for result in run["results"]] == [first["ruleId"], second["ruleId"]]
    assert (first["level"], second["level"]) == ("error", "warning")
    assert first["message"] == {"text": "there is no field 'maks'. Did you mean max?"}
    assert first["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {"uri": "policies/a%20b.yaml", "uriBaseId": "%SRCROOT%"},
                "region": {"startLine": 7, "startColumn": 23},
            }
        }
    ]


def test_a_problem_is_known_again_when_lines_above_it_come_and_go() -> None:
    moved = Problem(ERROR.file, ERROR.line + 4, 1, ERROR.code, ERROR.message, ERROR.fix)
    other = Problem(ERROR.file, ERROR.line, 1, ERROR.code, "there is no field 'gpu'")
    first, again, twice, else_ = (
        [result["partialFingerprints"]["quorate/v1"] for result in results(*problems)]
        for problems in ((ERROR,), (moved,), (ERROR, moved), (other,))
    )
    assert first == again == twice[:1]
    assert len({*twice, *else_}) == 3


def test_a_message_makes_no_link_in_sarif() -> None:
    (result,) = results(Problem("a", 1, 1, "c", "see [here](https://evil.example)"))
    assert result["message"]["text"] == "see \\[here\\](https://evil.example)."


@settings(max_examples=50)
@given(strangers, st.sampled_from(["error", "warning", "notice"]))
def test_every_format_can_be_read_whatever_the_names_are(names: list[str], severity: Severity) -> None:
    problems = [
        *review_problems(of_strangers(names), UNKNOWN),
        *(Problem(name, 1, 1, "code", name, name, severity) for name in names),
    ]
    said = {output: written(output, *problems) for output in FORMATS}
    assert all(line.startswith("::") for line in said["github"].splitlines()[:-1])
    assert len(said["github"].splitlines()) <= 31
    for result in json.loads(said["sarif"])["runs"][0]["results"]:
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[\w.~/%-]+", uri, re.ASCII)
        assert not uri.startswith("/")
    assert len(json.loads(said["gitlab"])) == len({entry["fingerprint"] for entry in json.loads(said["gitlab"])})
    cases = ElementTree.fromstring(said["junit"].encode()).findall("./testsuite/testcase")
    assert len(cases) == len(problems) == len(json.loads(said["gitlab"]))
    assert not any(re.search("[\x00-\x08\x1b\u202e]", text) for text in said.values())


def test_paths_come_back_from_their_uris() -> None:
    (result,) = results(Problem("policies/é|<a>:b?.yaml", 1, 1, "c", "m"))
    assert unquote(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]) == "policies/é|<a>:b?.yaml"


@pytest.mark.parametrize("output", FORMATS)
def test_the_same_problems_are_the_same_bytes_in_any_order(output: str) -> None:
    assert written(output, ERROR, WARNING) == written(output, WARNING, ERROR)
