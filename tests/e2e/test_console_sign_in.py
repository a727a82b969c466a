"""A real control plane behind an address from outside: a user comes by an identity provider, and goes as Git says."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.control_plane import ControlPlane, until
from tests.reconciler.access.provider import CLIENT, SECRET, provider_serving
from tests.reconciler.gitops.source.origin import Origin
from tests.reconciler.web.visitor import Visitor

OUTSIDE = "https://quorate.example"
ACCESS = """\
apiVersion: quorate.dev/v1
kind: AccessPolicy
metadata: {name: access}
spec:
  identity:
    oidc:
      - issuer: %s
        audience: quorate
        groupsClaim: groups
        clientId: quorate-console
        scopes: [profile, groups]
        sessionDuration: 8h
  roles:
    - {role: viewer, subjects: ["group:vision"]}
"""


@pytest.mark.thorough
def test_a_user_signs_in_by_the_address_from_outside(plane: ControlPlane, origin: Origin, tmp_path: Path) -> None:
    secret = tmp_path / "client-secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    with provider_serving() as provider:
        provider.register(f"{OUTSIDE}/sign-in/callback/{provider.place}", secret=SECRET)
        origin.commit({"policies/access.yaml": ACCESS % provider.url})
        plane.start("--external-url", OUTSIDE, "--client-secret", f"{provider.url}={secret}").until_ready()
        visitor = Visitor(plane.logged("listening")[-1]["url"], OUTSIDE)
        assert visitor.get("/queues").headers["location"] == "/sign-in?next=%2Fqueues"
        assert visitor.signs_in(provider, "/queues").headers["location"] == "/queues"
        assert "ada" in visitor.get("/queues").text
        origin.commit({"policies/access.yaml": (ACCESS % provider.url).replace(CLIENT, "another")})
        until("the client is gone", lambda: visitor.get("/queues").status_code == 303)
        ((code, grant),) = provider.at.grants.items()
    assert plane.signal(signal.SIGTERM) == 0
    assert all(secret not in plane.log() for secret in (code, grant.nonce, SECRET, *visitor.cookies.values()))


@pytest.mark.long
def test_a_secret_that_others_can_read_keeps_it_from_starting(plane: ControlPlane, tmp_path: Path) -> None:
    secret = tmp_path / "client-secret"
    secret.write_text(SECRET)
    secret.chmod(0o644)
    plane.spawn("--client-secret", f"https://id.example={secret}")
    assert plane.exit_code() == 1
    assert "chmod 600" in plane.log()


@pytest.mark.long
def test_plain_http_beyond_this_machine_is_told_at_the_start(plane: ControlPlane) -> None:
    plane.start("--listen=0.0.0.0:0")
    (told,) = plane.logged("console")
    assert "needs HTTPS" in told["problem"]
    plane.signal(signal.SIGTERM)
    plane.start("--listen=0.0.0.0:0", "--external-url", OUTSIDE)
    assert plane.logged("console") == []
