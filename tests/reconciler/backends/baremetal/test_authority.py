"""Whose a certificate is, whether it counts, and how one authority follows another."""

from __future__ import annotations

import os
import shutil
import ssl
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from reconciler.backends.baremetal.authority import UntrustedError
from reconciler.backends.baremetal.authority_file import AuthorityFile
from reconciler.backends.baremetal.certificates import (
    CertificateError,
    new_key,
    new_root,
    node_certificate,
    node_of_request,
    request_for,
    server_certificate,
)
from reconciler.backends.baremetal.join_token import JoinTokenError, new_token, read_token
from reconciler.backends.baremetal.key_files import KeyFileError
from reconciler.backends.baremetal.roots import Root, roots_in_use, signing_roots
from solver.model.cluster import NodeName
from solver.model.quantities import Instant
from tests.reconciler.backends.baremetal.trust import HOUR, NODE, OTHER, Trust, der

NOW = Instant.parse("2026-03-01T12:00:00Z")
DAY = 24 * HOUR


def test_no_session_is_resumed_without_its_certificate(trust: Trust) -> None:
    """A ticket would bring an agent back that was revoked meanwhile (RFC 8446, section 2.2)."""
    context = trust.authority.server_context()
    assert (context.num_tickets, context.options & ssl.OP_NO_TICKET) == (0, ssl.OP_NO_TICKET)


def test_a_certificate_speaks_for_its_node_and_no_other(trust: Trust) -> None:
    trust.joined(NODE)
    trust.joined(OTHER)
    assert trust.authority.node_of(der(trust.certificate(new_key(), NODE))) == NODE
    assert trust.authority.node_of(der(trust.certificate(new_key(), OTHER))) == OTHER


def test_what_does_not_count(trust: Trust) -> None:
    key = new_key()
    good = trust.certificate(key)
    with pytest.raises(UntrustedError, match="no agent has joined as node gpu-1"):
        trust.authority.node_of(der(good))
    trust.joined()
    identity = trust.authority.identity_of(der(good))
    trust.clock.moved = DAY - 60_000
    assert trust.authority.node_of(der(good)) == NODE
    trust.clock.moved = DAY
    with pytest.raises(UntrustedError, match="gpu-1 ended at"):
        trust.authority.node_of(der(good))
    assert trust.authority.no_longer([identity])[identity].startswith("the certificate of node gpu-1 ended")
    with pytest.raises(UntrustedError, match="can't be read"):
        trust.authority.node_of(b"nothing of the kind")


def test_a_stranger_who_names_everything_right_is_a_stranger(trust: Trust) -> None:
    trust.joined()
    own = trust.file.roots()[0].certificate
    key, now = new_key(), trust.clock.now()
    # Also one whose authority bears the name of ours.
    named_alike = _renamed(new_root(key, now), own.subject, key)
    for root in (new_root(key, now), named_alike):
        stranger = node_certificate(root, key, request_for(NODE, new_key()), 1, now)
        with pytest.raises(UntrustedError, match="not signed by an authority"):
            trust.authority.node_of(der(stranger))


def test_a_control_plane_is_no_node(trust: Trust) -> None:
    root = trust.file.roots()[0]
    own = server_certificate(root.certificate, root.key, new_key().public_key(), trust.clock.now())
    with pytest.raises(UntrustedError, match="it is no certificate of a node"):
        trust.authority.node_of(der(own))
    with pytest.raises(UntrustedError):
        trust.authority.node_of(der(root.certificate))


@pytest.mark.parametrize(
    "names",
    [
        (),
        (x509.RFC822Name("ada@example.com"),),
        (x509.DNSName("gpu-1"),),
        (x509.UniformResourceIdentifier("quorate://user/ada"),),
        (x509.UniformResourceIdentifier("quorate://node/GPU-1"),),
        (x509.UniformResourceIdentifier("quorate://node/gpu-1/.."),),
        (
            x509.UniformResourceIdentifier("quorate://node/gpu-1"),
            x509.UniformResourceIdentifier("quorate://node/gpu-2"),
        ),
        (x509.UniformResourceIdentifier("quorate://node/gpu-1"), x509.DNSName("localhost")),
    ],
)
def test_whoever_names_no_node_or_several_is_none(trust: Trust, names: tuple[x509.GeneralName, ...]) -> None:
    trust.joined(NODE)
    root, key = trust.file.roots()[0], new_key()
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    now = trust.certificate(key)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(root.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1 << 96)
        .not_valid_before(now.not_valid_before_utc)
        .not_valid_after(now.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
    with pytest.raises(CertificateError):
        node_of_request(builder.sign(key, hashes.SHA256()))
    with pytest.raises(UntrustedError, match=r"no certificate of a node|exactly one node"):
        trust.authority.node_of(der(made.sign(root.key, hashes.SHA256())))


def test_a_key_of_another_kind_gets_no_certificate() -> None:
    other = ec.generate_private_key(ec.SECP384R1())
    with pytest.raises(CertificateError, match="P-256"):
        node_of_request(request_for(NODE, other))


def test_revoking_and_joining_anew_end_what_was_there(trust: Trust) -> None:
    trust.joined()
    first = trust.certificate(new_key(), generation=1)
    identity = trust.authority.identity_of(der(first))
    assert trust.authority.no_longer([identity]) == {}
    with pytest.raises(UntrustedError, match="newer than anything the store knows"):
        trust.authority.node_of(der(trust.certificate(new_key(), generation=2)))
    trust.joined()
    with pytest.raises(UntrustedError, match="another agent has joined as node gpu-1 since"):
        trust.authority.node_of(der(first))
    second = trust.certificate(new_key(), generation=2)
    assert trust.authority.node_of(der(second)) == NODE
    trust.store.agents.revoke(NODE, trust.clock.now(), "ada")
    with pytest.raises(UntrustedError, match="was revoked by ada"):
        trust.authority.node_of(der(second))
    assert list(trust.authority.no_longer([identity])) == [identity]


def test_one_authority_follows_another_by_age_alone() -> None:
    old, new = (Root(new_root(key, when), key) for key, when in ((new_key(), NOW), (new_key(), NOW.after(90 * DAY))))
    certificates = old.certificate, new.certificate
    for days, signing, trusted in (
        (0.0, old, {old.certificate}),
        (0.99, old, {old.certificate}),
    ):
        assert _stands([old], NOW.after(int(days * DAY))) == (signing, trusted)
    for days, signing, trusted in (
        (0.0, old, set(certificates)),
        (0.99, old, set(certificates)),
        (1.0, new, set(certificates)),
        (1.99, new, set(certificates)),
        (2.0, new, {new.certificate}),
    ):
        now = NOW.after(90 * DAY + int(days * DAY))
        assert _stands([new, old], now) == (signing, trusted), days
        assert roots_in_use([new, old], now) == ([new] if days == 2.0 else [old, new])


def _stands(roots: list[Root], now: Instant) -> tuple[Root, set[x509.Certificate]]:
    found = signing_roots(roots, now)
    assert found.trusted[0] == found.signing.certificate
    return found.signing, set(found.trusted)


def test_rotation_is_seen_without_a_restart(trust: Trust) -> None:
    trust.joined()
    pin, before = trust.authority.pin, trust.certificate(new_key())
    # As another process does it.
    AuthorityFile(trust.file.path).rotate(trust.clock.now())
    assert trust.authority.pin == pin
    assert trust.authority.ca_certificate.count(b"BEGIN CERTIFICATE") == 2
    trust.clock.moved = DAY - 60_000
    late = trust.certificate(new_key())
    assert trust.authority.node_of(der(before)) == NODE
    trust.clock.moved = DAY + 60_000
    assert trust.authority.pin != pin
    assert trust.authority.node_of(der(late)) == trust.authority.node_of(der(trust.certificate(new_key()))) == NODE
    trust.clock.moved = 2 * DAY
    assert trust.authority.ca_certificate.count(b"BEGIN CERTIFICATE") == 1
    assert len(trust.file.rotate(trust.clock.now())) == 2


def test_the_authority_is_made_once_and_its_owners_alone(tmp_path: Path) -> None:
    file = AuthorityFile(tmp_path / "agents" / "authority.pem")
    with pytest.raises(KeyFileError, match="can't be used"):
        file.roots()
    file.make(NOW)
    first = file.roots()[0].certificate
    file.make(NOW)
    assert file.roots()[0].certificate == first
    assert (file.path.stat().st_mode & 0o777, file.path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda path: path.chmod(0o640), "chmod 600"),
        (lambda path: path.parent.chmod(0o777), "chmod go-w"),
        (lambda path: path.write_bytes(path.read_bytes()[:300]), "there is no authority|no private key"),
        (lambda path: path.write_bytes(b""), "there is no authority in it"),
        (lambda path: (shutil.copy(path, path.with_name("x")), path.unlink(), path.symlink_to("x")), "can't be read"),
        (lambda path: path.unlink(), "can't be read"),
    ],
)
def test_a_file_that_others_could_have_is_not_used(trust: Trust, spoil: object, problem: str) -> None:
    assert callable(spoil)
    spoil(trust.file.path)
    with pytest.raises(KeyFileError, match=problem):
        AuthorityFile(trust.file.path).roots()
    os.chmod(trust.file.path.parent, 0o700)


def test_a_token_says_whom_to_believe_and_hides_its_secret() -> None:
    token = new_token(NodeName("gpu17.dc2.example.com"), "f" * 43)
    assert read_token(f" {token}\n") == token
    assert token.secret not in f"{token!r} {token.hash}"
    for wrong in ("", str(token)[:-30] + "!", str(token).replace("qj1", "qj2"), f"{token}/..", str(token).upper()):
        with pytest.raises(JoinTokenError, match="no join token"):
            read_token(wrong)


def test_no_two_generations_or_numbers_are_mistaken_for_each_other(trust: Trust) -> None:
    trust.joined()
    agent = trust.store.agents.agent(NODE)
    assert agent is not None
    key = new_key()
    numbers = {trust.certificate(key, generation=generation).serial_number for generation in (1, 1, 2, 2**40)}
    assert len(numbers) == 4
    assert {number >> 96 for number in numbers} == {1, 2, 2**40}
    assert msgspec.structs.replace(agent, generation=1) == agent


def _renamed(root: x509.Certificate, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(root.serial_number)
        .not_valid_before(root.not_valid_before_utc)
        .not_valid_after(root.not_valid_before_utc + timedelta(days=9))
    )
    for extension in root.extensions:
        builder = builder.add_extension(extension.value, critical=extension.critical)
    return builder.sign(key, hashes.SHA256())
