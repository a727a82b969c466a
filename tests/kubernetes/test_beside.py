"""kube-scheduler is measured as Quorate is; skipped where it was not built."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from hack.bench_kubernetes import main
from hack.kubernetes.bench_beside import CANNOT, beside
from hack.kubernetes.bench_contenders import KUBE_SCHEDULER
from hack.kubernetes.components import ComponentMissingError, found, place
from tests.kubernetes.sessions import REAL

pytestmark = REAL


@pytest.fixture(autouse=True)
def there() -> None:
    try:
        found(place(), (KUBE_SCHEDULER,))
    except ComponentMissingError as missing:
        pytest.skip(str(missing))


def reported(case: str, small: int) -> dict[str, Any]:
    run = CliRunner().invoke(main, ["--case", case, "--small", str(small), "--beside", "-o", "json"])
    assert run.exit_code == 0, run.output
    told: dict[str, Any] = json.loads(run.stdout)
    return told


@pytest.mark.parametrize("case", ["gangs-rack", "gang512"])
def test_it_is_asked_for_the_same_as_quorate(case: str) -> None:
    ours = reported(case, 50)
    assert sorted(ours["beside"]) == ["unlimited", "usual"]
    for theirs in ours["beside"].values():
        assert (theirs["case"], theirs["nodes"], theirs["pods"]) == (case, ours["nodes"], ours["pods"])
        assert theirs["scheduler_cpu_s"] > 0


def test_it_gets_the_same_claims() -> None:
    ours = reported("mig-claims", 100)
    assert [theirs["bound"] for theirs in ours["beside"].values()] == [ours["pods"]] * 2


def test_what_it_can_not_do_is_said() -> None:
    assert beside("reclaim2000", 100) == {"cannot": CANNOT["reclaim2000"]}
