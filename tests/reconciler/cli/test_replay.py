"""`quorate replay` of a round in a state folder: the same plan again, or where it differs."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from reconciler.protocols.rounds import RoundRecord
from reconciler.server.folder import StateFolder
from reconciler.store.store import open_store
from solver.milp import pulp_model
from solver.milp.highs import optimise
from solver.milp.optimiser import Program
from solver.model.quantities import Duration, Instant
from solver.plan.plan import Certificate
from tests.reconciler.cli.conftest import Quorate
from tests.reconciler.control.optimiser.test_recording import cut, recorded


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Round 1 is as it was, round 2 was cut by a clock, and somebody has changed what round 3 says."""
    first = recorded(optimise)
    changed = msgspec.structs.replace(first.plan, certificate=Certificate("none", (), 0.0, "", 0))
    rounds = (first, recorded(cut), msgspec.structs.replace(first, plan=changed))
    _record(tmp_path, rounds)
    return tmp_path


def _record(folder: Path, rounds: tuple[RoundRecord, ...]) -> None:
    store = open_store(StateFolder(folder).database)
    epoch = store.ledger.lead("test", Instant(1), Duration(1))
    for record in rounds:
        store.history.record_round(epoch, record)
    store.close()


def test_the_same_plan_again(quorate: Quorate, state: Path) -> None:
    ran = quorate("replay", "1", "--state", str(state))
    assert (ran.exit_code, ran.out) == (0, f"round 1: identical, {recorded(optimise).plan.digest}\n")


def test_a_round_that_a_clock_had_cut(quorate: Quorate, state: Path) -> None:
    ran = quorate("replay", "2", "--state", str(state))
    assert ran.exit_code == 0
    assert "round 2: identical" in ran.out
    assert ran.out.endswith("from the optimiser's recorded answer: a clock had cut it\n")


def test_another_plan(quorate: Quorate, state: Path) -> None:
    ran = quorate("replay", "3", "--state", str(state))
    assert ran.exit_code == 1
    assert ran.out.startswith("round 3: different. plan.certificate.columns was 0 and is ")
    replayed = json.loads(quorate("replay", "3", "--state", str(state), "-o", "json").out)
    assert (replayed["kind"], replayed["round"], replayed["identical"]) == ("Replayed", 3, False)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "problem"),
    [
        (("9",), 1, "there is no round 9"),
        (("0",), 64, "0 is not in the range"),
        (("1", "--server", "http://127.0.0.1:1"), 64, "exclude each other"),
        (("1", "--store", "postgresql://q@127.0.0.1/q"), 64, "exclude each other"),
        (("1", "--store-password-file", "password"), 64, "is for --store"),
    ],
)
def test_what_can_not_be_replayed(
    quorate: Quorate, state: Path, arguments: tuple[str, ...], exit_code: int, problem: str
) -> None:
    ran = quorate("replay", *arguments, "--state", str(state))
    assert ran.exit_code == exit_code
    assert problem in ran.err


def test_a_folder_without_state(quorate: Quorate, tmp_path: Path) -> None:
    ran = quorate("replay", "1", "--state", str(tmp_path))
    assert ran.exit_code == 1
    assert "no control plane's state here" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_no_server(quorate: Quorate) -> None:
    assert quorate("replay", "1", "--server", "http://127.0.0.1:1").exit_code == 8


def test_the_same_plan_by_way_of_pulp(quorate: Quorate, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stated, seen = pulp_model.stated, list[int]()

    def counted(program: Program) -> object:
        seen.append(len(program.lower))
        return stated(program)

    monkeypatch.setattr(pulp_model, "stated", counted)
    ran = quorate("replay", "1", "--state", str(state), "--pulp")
    assert (ran.exit_code, ran.out) == (0, f"round 1: identical, {recorded(optimise).plan.digest}\n")
    assert seen
