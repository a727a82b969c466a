"""Quorate has the rights that it uses and no others: its roles against the audit log of all tests that ran under them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.kubernetes.audited import compared, rights_of, used_by
from hack.kubernetes.shipped import base_objects
from tests.kubernetes.sessions import REAL
from tests.kubernetes.together import audit_logs, failed_elsewhere, folder_of_all

pytestmark = REAL

NOT_USED_YET = {"watch workloads.scheduling.k8s.io"}
"""Rights of parts that no test runs under the shipped roles yet. What is used leaves this list: the test says so.

Kubernetes 1.36 does not serve the Workloads of 1.35, so that they are listed in vain.
"""


def test_nothing_was_asked_for_that_is_not_granted_and_nothing_is_granted_that_was_not_asked_for(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    folder = folder_of_all(tmp_path_factory)
    failed = request.session.testsfailed + failed_elsewhere(folder)
    lines = [line for log in audit_logs(folder) for line in log.read_text().splitlines()]
    found = compared(rights_of(base_objects()), used_by(lines))
    assert list(map(str, found.missing)) == []
    if failed or not _all_ran(request.session):
        pytest.skip("only a run of all tests that passed shows what is not used")
    assert set(map(str, found.unused)) == NOT_USED_YET


def _all_ran(session: pytest.Session) -> bool:
    """All files of this folder with tests of a server, and nothing left out of them by -k."""
    ours = {path for path in Path(__file__).parent.glob("test_*.py") if "REAL" in path.read_text()}
    return ours <= {item.path for item in session.items} and not session.config.option.keyword
