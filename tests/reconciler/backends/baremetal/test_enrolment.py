"""A node joins and renews over real TLS: what it gets, and who gets nothing."""

from __future__ import annotations

import base64
import random
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from reconciler.backends.baremetal.authority_file import AuthorityFile
from reconciler.backends.baremetal.certificates import CONTROL_PLANE, key_pem, new_key, pem_of, read_key
from reconciler.backends.baremetal.enrolment import Enrolment
from reconciler.backends.baremetal.join_wire import ROOTS_PATH, Asked, Issued, JoinAsked, NotIssued, RenewalAsked
from reconciler.backends.baremetal.key_files import KeyFileError
from reconciler.node.agent.identity import AgentIdentity, read_identity, renewal_time
from reconciler.node.agent.join import ControlPlaneUnreachableError, JoinRefusedError, join, pem_of_request, renew
from solver.model.document import decode, encode
from solver.model.quantities import Instant
from tests.reconciler.backends.baremetal.trust import HOUR, NODE, OTHER, Trust, der, door, trust_in

HOST = "127.0.0.1"
DAY = 24 * HOUR


@pytest.fixture
def port(trust: Trust) -> Iterator[int]:
    with door(trust) as opened:
        yield opened


def who(port: int, identity: AgentIdentity) -> str:
    """Whom the door takes this identity for."""
    with connect(
        f"wss://{HOST}:{port}/who", ssl=identity.client_context(), server_hostname=CONTROL_PLANE, proxy=None
    ) as connection:
        return str(connection.recv(10))


def test_a_node_joins_and_renews(trust: Trust, port: int, tmp_path: Path) -> None:
    path = tmp_path / "node" / "identity.pem"
    first = join(HOST, port, trust.token(), path)
    assert (first.node, who(port, first)) == (NODE, NODE)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["identity.pem"]
    second = renew(HOST, port, first)
    assert read_identity(path) == second
    assert second.certificate.public_key() != first.certificate.public_key()
    assert who(port, second) == NODE
    assert [event.kind for event in trust.store.history.events(NODE)] == ["agent-joined"]


def test_a_token_works_once(trust: Trust, port: int, tmp_path: Path) -> None:
    token = trust.token()
    join(HOST, port, token, tmp_path / "a" / "identity.pem")
    with pytest.raises(JoinRefusedError, match=r"used before, with another key.*Make a token"):
        join(HOST, port, token, tmp_path / "b" / "identity.pem")


def test_an_answer_that_never_came_is_asked_for_again(trust: Trust, port: int, tmp_path: Path) -> None:
    path, token, key = tmp_path / "node" / "identity.pem", trust.token(), new_key()
    asked = JoinAsked(str(token), pem_of_request(NODE, key))
    assert isinstance(decode(trust.joining.answer(encode(asked)), Issued), Issued)
    path.parent.mkdir(mode=0o700)
    pending = path.with_name("identity.pem.joining")
    pending.write_bytes(key_pem(key))
    pending.chmod(0o600)
    assert who(port, join(HOST, port, token, path)) == NODE


class Lying(Enrolment):
    """Shows authorities that are not its own."""

    shown = b""

    def roots(self) -> bytes:
        return self.shown


def test_the_pinned_authority_alone_is_believed(trust: Trust, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    node = tmp_path / "node" / "identity.pem"
    with trust_in(tmp_path / "other") as impostor:
        with (
            door(impostor) as port,
            pytest.raises(JoinRefusedError, match="not the control plane that the token is of"),
        ):
            join(HOST, port, trust.token(), node)
        # It may well show our authority: it has not the key.
        liar = Lying(impostor.authority, impostor.store.agents, impostor.store.history, impostor.clock)
        liar.shown = trust.authority.ca_certificate
        with (
            door(impostor, liar) as port,
            pytest.raises(ControlPlaneUnreachableError, match="certificate verify failed"),
        ):
            join(HOST, port, trust.token(), node)
    assert trust.store.agents.agents() == ()


def test_nobody_there_is_no_refusal(trust: Trust, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ControlPlaneUnreachableError, match=f"{HOST}:{port}"):
        join(HOST, port, trust.token(), tmp_path / "node" / "identity.pem")


def test_an_outage_longer_than_a_certificate_is_no_end(trust: Trust, port: int, tmp_path: Path) -> None:
    first = join(HOST, port, trust.token(), tmp_path / "node" / "identity.pem")
    asked = _renewal(first, pem_of_request(NODE, new_key()))
    trust.clock.moved = 14 * DAY
    assert isinstance(answered(trust, asked), Issued)
    trust.clock.moved = 15 * DAY
    assert "ended at" in refused(trust, asked)


def test_who_gets_no_next_certificate(trust: Trust, port: int, tmp_path: Path) -> None:
    first = join(HOST, port, trust.token(), tmp_path / "node" / "identity.pem")
    mine, stranger = pem_of_request(NODE, new_key()), new_key()
    good = _renewal(first, mine)
    assert "not signed by the key" in refused(
        trust, RenewalAsked(good.certificate, pem_of_request(NODE, new_key()), good.signature)
    )
    assert "not signed by the key" in refused(trust, RenewalAsked(good.certificate, mine, _sign(stranger, mine)))
    assert "not signed by the key" in refused(trust, RenewalAsked(good.certificate, mine, "no base64"))
    assert "node gpu-1 asks for a certificate of node gpu-2" in refused(
        trust, _renewal(first, pem_of_request(OTHER, new_key()))
    )
    assert isinstance(answered(trust, good), Issued)
    trust.store.agents.revoke(NODE, trust.clock.now(), "ada")
    assert "counts no more" in refused(trust, good)
    with pytest.raises(JoinRefusedError, match="counts no more"):
        renew(HOST, port, first)
    assert who(port, first).startswith("the certificate of node gpu-1 was revoked by ada")


def test_a_request_for_another_name_gets_nothing(trust: Trust) -> None:
    asked = JoinAsked(str(trust.token(NODE)), pem_of_request(OTHER, new_key()))
    assert "the token is for node gpu-1, and gpu-2 asks" in refused(trust, asked)
    assert trust.store.agents.agents() == ()


@pytest.mark.parametrize(
    "message", [b"", b"{}", b"\xff\xfe", b'{"type":"join"}', b'{"type":"join","token":"","request":""}']
)
def test_what_is_no_question_is_told_so(trust: Trust, message: bytes) -> None:
    assert decode(trust.joining.answer(message), NotIssued).code == "malformed"


def test_certificates_are_for_their_end_of_a_connection(trust: Trust, port: int, tmp_path: Path) -> None:
    identity = join(HOST, port, trust.token(), tmp_path / "node" / "identity.pem")
    as_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    as_server.load_cert_chain(identity.path)
    ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = identity.client_context().wrap_bio(ours, theirs, server_hostname=CONTROL_PLANE)
    server = as_server.wrap_bio(theirs, ours, server_side=True)
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(client, server)


def _shake_hands(*ends: ssl.SSLObject) -> None:
    for end in ends * 4:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()


def test_another_authoritys_certificate_is_turned_away_by_tls(trust: Trust, port: int, tmp_path: Path) -> None:
    own = join(HOST, port, trust.token(), tmp_path / "node" / "identity.pem")
    (tmp_path / "other").mkdir()
    with trust_in(tmp_path / "other") as other:
        key = new_key()
        forged = tmp_path / "node" / "forged.pem"
        forged.write_bytes(key_pem(key) + pem_of(other.certificate(key)) + own.authorities)
        forged.chmod(0o600)
    with pytest.raises((ssl.SSLError, OSError, WebSocketException)):
        who(port, read_identity(forged))


def test_agents_follow_a_rotation_while_the_port_stays_open(trust: Trust, port: int, tmp_path: Path) -> None:
    first = join(HOST, port, trust.token(), tmp_path / "node" / "identity.pem")
    # As if somebody had done so nearly a day ago: clocks that TLS reads can't be moved further than a certificate is backdated.
    AuthorityFile(trust.file.path).rotate(trust.clock.now().after(60_000 - DAY))
    second = renew(HOST, port, first)
    assert second.authorities.count(b"BEGIN CERTIFICATE") == 2
    pin = trust.authority.pin
    trust.clock.moved = 120_000
    assert trust.authority.pin != pin
    third = renew(HOST, port, second)
    assert who(port, third) == NODE
    with pytest.raises(ControlPlaneUnreachableError, match="certificate verify failed"):
        renew(HOST, port, first)


def test_an_identity_that_others_can_read_is_not_used(trust: Trust, port: int, tmp_path: Path) -> None:
    identity = join(HOST, port, trust.token(), tmp_path / "node" / "identity.pem")
    identity.path.chmod(0o644)
    with pytest.raises(KeyFileError, match="chmod 600"):
        read_identity(identity.path)
    identity.path.chmod(0o600)
    whole = identity.path.read_bytes()
    for damaged in (b"", whole[:200], key_pem(new_key()) + whole[whole.index(b"-----BEGIN CERT") :]):
        identity.path.write_bytes(damaged)
        with pytest.raises(KeyFileError, match="Delete it and join again"):
            read_identity(identity.path)


def test_a_file_that_was_damaged_since_is_no_end_of_the_agent(trust: Trust, port: int, tmp_path: Path) -> None:
    identity = join(HOST, port, trust.token(), tmp_path / "agent" / "identity.pem")
    identity.path.write_text("no key")
    assert who(port, identity) == NODE
    renewed = renew(HOST, port, identity)
    assert read_identity(identity.path) == renewed


def test_a_new_certificate_is_served_to_new_connections_and_old_ones_live_on(trust: Trust, port: int) -> None:
    """Also while the authority's file is half written: what was read of it before goes on."""
    trust.joined()
    first, before = shown(port)
    whole = trust.file.path.read_bytes()
    trust.file.path.write_bytes(whole[:300])
    trust.clock.moved = DAY
    second, after = shown(port)
    assert (after != before, trust.authority.node_of(der(trust.certificate(new_key())))) == (True, NODE)
    assert [asked_for_roots(each) for each in (first, second)] == [b"HTTP/1.1 200 OK"] * 2
    trust.file.path.write_bytes(whole)
    assert len(trust.file.rotate(trust.clock.now())) == 2


def shown(port: int) -> tuple[ssl.SSLSocket, bytes]:
    """A connection, and the certificate that the control plane showed for it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    opened = context.wrap_socket(socket.create_connection((HOST, port)), server_hostname="quorate")
    return opened, opened.getpeercert(binary_form=True) or b""


def asked_for_roots(opened: ssl.SSLSocket) -> bytes:
    with opened:
        opened.sendall(f"GET {ROOTS_PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return opened.recv(65536).partition(b"\r\n")[0]


def test_renewals_are_spread_around_half_of_the_life() -> None:
    chance, end, tenth = random.Random(7), Instant(10 * DAY), DAY // 10
    times = [renewal_time(chance.getrandbits(96), end) - (end - DAY // 2) for _ in range(1_000)]
    assert all(-tenth <= each < tenth for each in times)
    quarters = Counter((each + tenth) * 2 // tenth for each in times)
    assert sorted(quarters) == [0, 1, 2, 3]
    assert all(200 < count < 300 for count in quarters.values())


def test_the_certificate_before_the_last_counts_until_its_end(trust: Trust) -> None:
    """Whoever was cut off while renewing still has it."""
    trust.joined()
    first, second = trust.certificate(new_key()), trust.certificate(new_key())
    assert {trust.authority.node_of(der(each)) for each in (first, second)} == {NODE}


def answered(trust: Trust, asked: Asked) -> Issued | NotIssued:
    return decode(trust.joining.answer(encode(asked)), Issued | NotIssued)  # type: ignore[arg-type]


def refused(trust: Trust, asked: Asked) -> str:
    answer = answered(trust, asked)
    assert isinstance(answer, NotIssued), answer
    return answer.problem


def _renewal(identity: AgentIdentity, request: str) -> RenewalAsked:
    key = read_key(identity.path.read_bytes())
    return RenewalAsked(pem_of(identity.certificate).decode(), request, _sign(key, request))


def _sign(key: ec.EllipticCurvePrivateKey, text: str) -> str:
    return base64.b64encode(key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))).decode()
