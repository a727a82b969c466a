"""What is said of files with secrets that can't be used."""

from __future__ import annotations

from pathlib import Path

from reconciler.access.secret_file import SecretRegister
from reconciler.access.token_file import own_token_source
from reconciler.server.secret_status import SecretStatus


def test_a_file_that_can_not_be_used_is_told_with_place_problem_and_fix(tmp_path: Path) -> None:
    secrets = SecretRegister()
    good, spoilt = own_token_source(tmp_path / "good"), own_token_source(tmp_path / "token")
    for each in (good, spoilt):
        secrets.add(each)
    standing = SecretStatus(secrets)
    assert list(standing.conditions()) == []
    assert {sample.value for metric in standing.collect() for sample in metric.samples} == {0}
    spoilt.path.chmod(0o644)
    (found,) = standing.conditions()
    assert (found.type, found.status, found.reason) == ("SecretUnusable", True, "FileUnusable")
    assert found.message == (
        f"{spoilt.path}: others can read or own this token. Run: chmod 600 {spoilt.path}; or get another one, if they have read "
        "it. What was read of it before counts until a good file is in its place"
    )
    (metric,) = standing.collect()
    assert {sample.labels["file"]: sample.value for sample in metric.samples} == {good.place: 0, spoilt.place: 1}
    spoilt.path.chmod(0o600)
    assert list(standing.conditions()) == []
