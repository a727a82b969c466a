"""A real control plane with users: tokens of a file and of an identity provider, and roles that come from Git."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.access.tokens import create_token
from reconciler.client import Client, NotAuthorisedError
from solver.model.workload import JobName
from tests.e2e.control_plane import PATIENCE_S, ControlPlane, sh, until
from tests.reconciler.access.issuer import serving
from tests.reconciler.gitops.source.origin import Origin

pytestmark = pytest.mark.thorough

ACCESS = """\
apiVersion: quorate.dev/v1
kind: AccessPolicy
metadata: {name: access}
spec:
  identity: {oidc: [{issuer: "%s", audience: quorate, groupsClaim: groups}]}
  roles:
    - {role: submitter, subjects: ["group:vision"], queues: [team]}
    - {role: viewer, subjects: ["user:bob"]}
"""


@contextmanager
def client_with(plane: ControlPlane, token: str) -> Iterator[Client]:
    with Client(plane.logged("listening")[-1]["url"], token) as client:
        yield client


def test_users_come_by_file_and_by_provider_and_do_what_git_lets_them(
    plane: ControlPlane, origin: Origin, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    bob = create_token(tokens, "bob")
    with serving() as issuer:
        origin.commit({"policies/access.yaml": ACCESS % issuer.url})
        plane.start("--tokens", str(tokens)).until_ready()
        with client_with(plane, issuer.token(time.time())) as ada, client_with(plane, bob) as viewer:
            assert (ada.who_am_i().user, ada.who_am_i().submits_to) == ("ada", ("team",))
            ada.submit(JobName("job"), sh("echo hello"))
            assert ada.wait("job", PATIENCE_S).state == "succeeded"
            until("the log is there", lambda: ada.log("job") == b"hello\n")
            assert viewer.job("job").user == "ada"
            for ask in (lambda: viewer.log("job"), lambda: viewer.submit(JobName("bobs"), sh("true"))):
                with pytest.raises(NotAuthorisedError, match=r"bob may (not|submit to no queue)"):
                    ask()
            assert ada.cancel("job").state == "succeeded"
            # Without a line in the file, and without a role in Git, nobody gets in.
            tokens.write_text("# nobody\n")
            with pytest.raises(NotAuthorisedError, match="no user has this token"):
                viewer.jobs()
            origin.commit({"policies/access.yaml": ACCESS.replace("group:vision", "group:other") % issuer.url})

            def refused() -> bool:
                try:
                    ada.queues()
                except NotAuthorisedError:
                    return True
                return False

            until("the role is gone", refused)
    assert plane.signal(signal.SIGTERM) == 0


@pytest.mark.long
def test_a_token_file_that_others_can_read_keeps_it_from_starting(plane: ControlPlane, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    create_token(tokens, "bob")
    tokens.chmod(0o644)
    plane.spawn("--tokens", str(tokens))
    assert plane.exit_code() == 1
    assert "chmod 600" in plane.log()
