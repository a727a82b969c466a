"""The file of allowed signers: what of it counts now, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.gitops.source.floor import AllowedSignersError, read_allowed_signers
from solver.model.quantities import Instant

NOW = Instant.parse("2026-03-01T12:00:00Z")
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEnBPAwHzbx6gXwJ4OKQPOuaMnHpuiIzP/cuJMBZ1R6D"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "allowed"


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        (f"ada@example.com {KEY}", True),
        (f"ada@example.com,*@example.org {KEY} ada@laptop", True),
        (f'"ada lovelace" namespaces="git" {KEY}', True),
        (f'ada namespaces="file,git" {KEY}', True),
        (f'ada namespaces="*" {KEY}', True),
        (f'ada namespaces="file" {KEY}', False),
        (f'ada valid-after="20260301Z",valid-before="20260302Z" {KEY}', True),
        (f'ada valid-before="20260301115959Z" {KEY}', False),
        (f'ada valid-before="202603011200Z" {KEY}', False),
        (f'ada valid-before="202603011201Z" {KEY}', True),
        (f'ada valid-after="20260301120001Z" {KEY}', False),
        (f'ada namespaces="git",valid-before="20200101" {KEY}', False),
        (f"# ada {KEY}", False),
        ("", False),
    ],
)
def test_a_line_counts_for_git_and_now(file: Path, line: str, counts: bool) -> None:
    file.write_text(f"\n{line}\n")
    assert read_allowed_signers(file, NOW).ssh == ((KEY,) if counts else ())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (KEY, "no line of allowed signers"),
        ("ada", "no line of allowed signers"),
        (f"ada cert-authority {KEY}", "cert-authority is not supported"),
        (f'ada valid-before="soon" {KEY}', "'soon' is no time"),
        (f'ada valid-before="20261301" {KEY}', "'20261301' is no time"),
        ("ada ssh-ed25519 AAAA", "none of type ssh-ed25519"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n-----END PGP PRIVATE KEY BLOCK-----", "private key"),
    ],
)
def test_what_is_not_understood_is_refused(file: Path, line: str, why: str) -> None:
    file.write_text(f"# people\n{line}\n")
    with pytest.raises(AllowedSignersError, match=why) as refused:
        read_allowed_signers(file, NOW)
    assert str(refused.value).startswith(str(file))


def test_a_file_that_others_can_write_or_nobody_can_read(file: Path) -> None:
    with pytest.raises(AllowedSignersError, match="can't be read"):
        read_allowed_signers(file, NOW)
    file.write_text(f"ada {KEY}\n")
    file.chmod(0o664)
    with pytest.raises(AllowedSignersError, match="others can write"):
        read_allowed_signers(file, NOW)
    file.chmod(0o644)
    file.write_bytes(b"\xff\n")
    with pytest.raises(AllowedSignersError, match="not UTF-8"):
        read_allowed_signers(file, NOW)
