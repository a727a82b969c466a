"""`quorate audit`: what users did, and whether what is on record is whole."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

import pytest

from reconciler.access.audit_keys import AuditKeyFile
from reconciler.cli.exits import ExitCode
from reconciler.protocols.history import Event
from reconciler.server.folder import StateFolder
from reconciler.store.store import open_store
from tests.contracts.stores import LEASE, NOW
from tests.contracts.test_history import record_of
from tests.fresh_store import fresh_store
from tests.reconciler.cli.conftest import Quorate


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder with three events and a round on record."""
    folder = StateFolder(tmp_path / "state")
    folder.path.mkdir(mode=0o700)
    fresh_store(folder.database).close()
    keys = AuditKeyFile(folder.audit_keys)
    keys.begin()
    store = open_store(folder.database, audit_keys=keys)
    for number, actor in enumerate(("ada", "bob", "ada")):
        store.history.record_event(
            Event(NOW.after(number * 1_000), "cordoned", f"n{number}", "it smells\nof it", actor)
        )
    store.history.record_round(store.ledger.lead("first", NOW, LEASE), record_of())
    store.close()
    return folder.path


def forge(state: Path) -> None:
    with sqlite3.connect(state / "quorate.db") as database:
        database.execute("UPDATE events SET actor = 'eve\x1b[31m' WHERE number = 2")
    database.close()


def test_a_store_is_verified(quorate: Quorate, state: Path) -> None:
    ran = quorate("audit", "verify", "--state", str(state))
    assert (ran.exit_code, ran.out.splitlines()[-1]) == (ExitCode.OK, "the audit chain is whole")
    assert "events: 3 records, links 1 to 4" in ran.out
    forge(state)
    ran = quorate("audit", "verify", "--state", str(state))
    assert ran.exit_code == ExitCode.AUDIT_BROKEN
    assert "changed: events link 3 record 2: the record is not what it was when it was written (after" in ran.out
    ran = quorate("audit", "verify", "--state", str(state), "-o", "json")
    found = json.loads(ran.out)
    assert (ran.exit_code, found["kind"], len(found["findings"])) == (ExitCode.AUDIT_BROKEN, "AuditReport", 1)
    finding = found["findings"][0]
    assert {name: finding[name] for name in ("problem", "chain", "link", "record", "after", "before")} == {
        "problem": "changed",
        "chain": "events",
        "link": 3,
        "record": 2,
        "after": str(NOW),
        "before": str(NOW.after(2_000)),
    }


@pytest.mark.parametrize("name", ["chain.jsonl", "chain.jsonl.gz"])
def test_an_export_is_verified_elsewhere(quorate: Quorate, state: Path, tmp_path: Path, name: str) -> None:
    out, keys = tmp_path / name, ("--audit-keys", str(state / "audit-keys"))
    ran = quorate("audit", "export", "--out", str(out), "--state", str(state))
    assert (ran.exit_code, f"6 entries written to {out}" in ran.err) == (ExitCode.OK, True)
    assert quorate("audit", "verify", "--export", str(out), *keys).exit_code == ExitCode.OK
    forge(state)
    quorate("audit", "export", "--out", str(out), "--state", str(state))
    assert quorate("audit", "verify", "--export", str(out), *keys).exit_code == ExitCode.AUDIT_BROKEN
    whole = out.read_bytes()
    out.write_bytes(whole[:-20])
    ran = quorate("audit", "verify", "--export", str(out), *keys)
    assert (ran.exit_code, "it is no whole export" in ran.err) == (ExitCode.ERROR, True)


def test_what_was_cut_off_is_found_by_an_anchor(quorate: Quorate, state: Path, tmp_path: Path) -> None:
    anchors = tmp_path / "anchors"
    for _ in range(2):
        assert quorate("audit", "anchor", "--state", str(state), "--file", str(anchors)).exit_code == ExitCode.OK
    assert len(anchors.read_text().splitlines()) == 1, "where nothing is new no line is added"
    with sqlite3.connect(state / "quorate.db") as database:
        database.execute("DELETE FROM events WHERE number = 3")
        database.execute("DELETE FROM audit_links WHERE chain = 'events' AND record = 3")
    database.close()
    assert quorate("audit", "verify", "--state", str(state)).exit_code == ExitCode.OK
    ran = quorate("audit", "verify", "--state", str(state), "--anchors", str(anchors))
    assert (ran.exit_code, "truncated: events link 4:" in ran.out) == (ExitCode.AUDIT_BROKEN, True)
    (state / "audit-anchors").write_bytes(anchors.read_bytes())
    assert quorate("audit", "verify", "--state", str(state)).exit_code == ExitCode.AUDIT_BROKEN, "the server's own file"


def git(repository: Path, *arguments: str) -> None:
    subprocess.run(("git", "-C", str(repository), *arguments), check=True, capture_output=True)


def test_anchors_are_tags_of_the_policy_repository(quorate: Quorate, state: Path, tmp_path: Path) -> None:
    repository, key = tmp_path / "policy", tmp_path / "key"
    git(tmp_path, "init", "policy")
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)), check=True)
    (tmp_path / "signers").write_text(f"ada@example.org {key.with_suffix('.pub').read_text()}")
    for name, value in (
        *(
            ("user.name", "Ada"),
            ("user.email", "ada@example.org"),
            ("gpg.format", "ssh"),
            ("user.signingKey", str(key)),
        ),
        ("gpg.ssh.allowedSignersFile", str(tmp_path / "signers")),
    ):
        git(repository, "config", name, value)
    git(repository, "commit", "--allow-empty", "--message", "policy")
    at = "--state", str(state)
    ran = quorate("audit", "anchor", *at, "--tag", str(repository), "--sign")
    assert (ran.exit_code, "push it: git push origin quorate-audit/" in ran.err) == (ExitCode.OK, True)
    against = "--tags", str(repository), "--signed"
    assert quorate("audit", "verify", *at, *against).exit_code == ExitCode.OK
    (state / "quorate.db").unlink()
    fresh_store(state / "quorate.db").close()
    ran = quorate("audit", "verify", *at, *against)
    assert (ran.exit_code, ran.out.count("truncated:")) == (ExitCode.AUDIT_BROKEN, 2)
    git(repository, "tag", "--annotate", "--message", "nothing is wrong", "quorate-audit/forged")
    ran = quorate("audit", "verify", *at, *against)
    assert (ran.exit_code, "git verify-tag" in ran.err) == (ExitCode.ERROR, True)


def test_keys_rotate(quorate: Quorate, state: Path) -> None:
    ran = quorate("audit", "rotate-key", "--state", str(state))
    assert (ran.exit_code, "signs from now on" in ran.err) == (ExitCode.OK, True)
    assert len((state / "audit-keys").read_text().split()) == 2
    assert quorate("audit", "verify", "--state", str(state)).exit_code == ExitCode.OK


def test_what_can_not_be_done_is_said(quorate: Quorate, state: Path, tmp_path: Path) -> None:
    (state / "audit-keys").write_text("short\n")
    ran = quorate("audit", "verify", "--state", str(state))
    assert (ran.exit_code, "holds no audit keys" in ran.err) == (ExitCode.ERROR, True)
    ran = quorate("audit", "verify", "--state", str(state), "--signed")
    assert (ran.exit_code, "--signed is about --tags" in ran.err) == (ExitCode.USAGE, True)
    ran = quorate("audit", "verify", "--store", "postgresql://localhost/none")
    assert (ran.exit_code, "Name the file of its control planes with --audit-keys" in ran.err) == (ExitCode.ERROR, True)
    ran = quorate("audit", "anchor", "--state", str(tmp_path / "none"))
    assert (ran.exit_code, "there is no store here" in ran.err) == (ExitCode.ERROR, True)
