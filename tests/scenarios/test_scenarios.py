"""Every YAML file beside this one is a test. `pytest --update-scenarios` rewrites the answers; a person reviews the diff."""

from __future__ import annotations

from pathlib import Path

import pytest

from solver.checker.check import violations
from solver.milp.highs import optimise
from solver.round.solve import solve
from tests.scenarios.loader import read_scenario, told

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, update_scenarios: bool) -> None:
    scenario = read_scenario(path)
    plan = solve(scenario.snapshot, scenario.policy, optimise)
    assert violations(scenario.snapshot, scenario.policy, plan) == ()
    answer = told(scenario.snapshot, plan)
    if update_scenarios:
        head = path.read_text().split("\nthen: |\n")[0]
        path.write_text(f"{head}\nthen: |\n" + "".join(f"  {line}\n" for line in answer.splitlines()))
    else:
        assert answer == scenario.then


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_search_keeps_the_rules_too(path: Path) -> None:
    """Where the program has no time, the answer may be another, but it breaks no rule."""
    scenario = read_scenario(path)
    assert violations(scenario.snapshot, scenario.policy, solve(scenario.snapshot, scenario.policy, None)) == ()


def test_there_are_scenarios_and_each_says_why() -> None:
    assert len(SCENARIOS) >= 12
    assert [path.stem for path in SCENARIOS if len(read_scenario(path).why.split()) < 8] == []
