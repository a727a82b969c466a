"""Seeded mutants can be put where they say, so that the list does not rot. Whether tests catch them says `make mutants`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from hack.mutants.__main__ import main
from hack.mutants.catalogue import Mutant, mutants, problems

FEWEST = 60
FEWEST_CAUGHT = 0.95


def test_each_mutant_can_be_put_where_it_says() -> None:
    assert [problem for area in mutants().values() for mutant in area for problem in problems(mutant)] == []


def test_there_are_enough_of_them_in_each_area_and_nearly_all_are_to_be_caught() -> None:
    by_area = mutants()
    everything = [mutant for area in by_area.values() for mutant in area]
    assert set(by_area) == {"authority", "checker", "fence", "ledger", "storage"}
    assert len(everything) >= FEWEST
    assert [name for name, count in Counter(mutant.name for mutant in everything).items() if count > 1] == []
    assert sum(not mutant.survives for mutant in everything) / len(everything) >= FEWEST_CAUGHT


SOUND = Mutant("m", "a.py", "x = 1", "x = 2", "it is wrong", ("test_a.py", "test_a.py::test_it"))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"file": "b.py"}, "there is no b.py"),
        ({"old": "x = 3"}, "stands 0 times in a.py"),
        ({"old": "x"}, "stands 2 times in a.py"),
        ({"new": "x = 1"}, "changes nothing"),
        ({"new": "x = ("}, "can't be read with it"),
        ({"tests": ()}, "names no tests"),
        ({"tests": ("test_b.py",)}, "there are no tests test_b.py"),
        ({"tests": ("test_a.py::test_no",)}, "there are no tests test_a.py::test_no"),
    ],
)
def test_an_entry_that_has_rotted_is_told_of(tmp_path: Path, changed: dict[str, object], told: str) -> None:
    (tmp_path / "a.py").write_text("x = 1\nprint(x)\n")
    (tmp_path / "test_a.py").write_text("def test_it(): ...\n")
    assert list(problems(SOUND, tmp_path)) == []
    (problem,) = problems(msgspec.structs.replace(SOUND, **changed), tmp_path)
    assert told in problem


@pytest.mark.thorough
def test_one_that_tests_miss_is_told_of_and_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    rights, tests = "reconciler/access/rights.py", ("tests/reconciler/access/test_rights.py",)
    found = Mutant(
        "found", rights, "if self._caller.owner or (action in OWN", "if action or (action in OWN", "all may all", tests
    )
    missed = Mutant("missed", rights, '"""The roles of a caller, by queue."""', '"""Roles."""', "it says less", tests)
    known = msgspec.structs.replace(missed, name="known", survives="it only says less")
    for chosen, code in (([found, known], 0), ([found, missed], 1)):
        monkeypatch.setattr("hack.mutants.__main__.mutants", lambda chosen=chosen: {"area": chosen})
        run = CliRunner().invoke(main, ["--only", "area", "--no-baseline"])
        assert (run.exit_code, run.output.splitlines()[0].split()) == (code, ["caught", "found"])
        assert ("survived unexpectedly: missed" in run.output) == (code == 1)
    untried = CliRunner().invoke(main, ["--only", "aera"])
    assert (untried.exit_code, "Did you mean area?" in untried.output) == (2, True)
