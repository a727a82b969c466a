"""`quorate explain` answers from the schemas, and offers the nearest field where there is none."""

from __future__ import annotations

import json

import pytest

from reconciler.documents.schemas import KINDS
from tests.reconciler.cli.conftest import Quorate

GUARANTEED = """\
Queue.spec.quota[].guaranteed  <number of GPUs>

  GPUs that the queue always gets when it has demand for them. While idle they are lent to others,
  and come back as the borrowers' jobs end. Children's guarantees may not add up to more than their
  parent's. Absent: the weighted share of what the parent has not given to its other children; an
  explicit 0 is none.
  Limits: at least 0, at most 1000000.
"""
SOLVER = """\
SchedulingPolicy.spec.solver  <mapping>  default: {}

  How hard a round tries.

Fields:
  mode  <one of production, exact>  default: "production"
      `exact` leaves out what keeps a round fast: it asks for a gap of 0, tries every combination of
      GPU types, solves the program as it is stated, and tries every placement where its answer
      can't be placed. For small clusters and for audits.
  gap  <number>  default: 0.0
      The relative distance from the proven bound at which a layer of the objective counts as
      solved. 0 asks for a proof of optimality. Entitled demand is always solved to 0.
  timeLimit  <duration>  default: "10s"
      How long a round may wait for the integer program, all its questions to it together. It is a
      safety net: a round that meets it uses the best answer so far.
  seed  <whole number>  default: 0
      The solver's random seed. Equal inputs and equal seeds give equal plans.
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("queue.spec.quota.guaranteed", GUARANTEED),
        ("Queue.spec.quota[].guaranteed", GUARANTEED),
        ("queue.spec.guaranteed", GUARANTEED),
        ("schedulingpolicy.spec.solver", SOLVER),
    ],
)
def test_a_field_is_explained(quorate: Quorate, path: str, expected: str) -> None:
    assert quorate("explain", path) == (0, expected, "")


@pytest.mark.parametrize(
    ("path", "problem", "fix"),
    [
        ("queue.spec.wieght", "there is no field 'wieght' in Queue.spec", "Did you mean weight?"),
        ("quue", "there is no kind 'quue'", "Did you mean queue?"),
        ("job.spec.array.xyz", "there is no field 'xyz' in Job.spec.array", "Known: indices, maxRunning."),
        ("job.spec.taskGroups.xyz", "there is no field 'xyz' in Job.spec.taskGroups", "Known: command, launcher,"),
        ("plan.gpuType", "there is no field 'gpuType' in Plan", "Did you mean Plan.verdicts[].reasons[].gpuType"),
        ("queue.spec.weight.more", "there is no field 'more' in Queue.spec.weight", ""),
        ("queue..", "there is no field '' in Queue", ""),
    ],
)
def test_a_wrong_path_is_a_usage_error_with_the_nearest(quorate: Quorate, path: str, problem: str, fix: str) -> None:
    ran = quorate("explain", path)
    assert (ran.exit_code, ran.out) == (64, "")
    assert problem in ran.err
    assert fix in ran.err


def test_without_a_path_all_kinds_are_listed(quorate: Quorate) -> None:
    listed = [line for line in quorate("explain").out.splitlines() if not line.startswith(" ")]
    assert listed == list(KINDS)


def test_help_is_data_for_programs(quorate: Quorate) -> None:
    explanation = json.loads(quorate("explain", "job.spec.taskGroups.shape.memory", "-o", "json").out)
    assert (explanation["apiVersion"], explanation["kind"]) == ("quorate.dev/v1", "Explanation")
    assert explanation["fields"] == [
        {
            "path": "Job.spec.taskGroups[].shape.memory",
            "type": "memory size",
            "description": "Memory of one task: 64Gi, 512Mi or 2T.",
            "default": '"0"',
            "limits": ["at least 0", "at most 1000000000000000000"],
            "examples": ["64Gi", "512Mi", "2T"],
        }
    ]
