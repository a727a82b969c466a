"""Agents over the API: tokens, how certificates stand, revocation; and what speaks for a node never speaks for a user."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.api.agent_routes import agent_views
from reconciler.api.guard import Guard
from reconciler.api.server import ApiServer
from reconciler.backends.baremetal.authority_file import AuthorityFile
from reconciler.backends.baremetal.certificates import fingerprint, pem_of
from reconciler.backends.baremetal.join_token import read_token
from reconciler.cli.main import run
from reconciler.client import ApiError, Client
from reconciler.node.agent.identity import read_identity
from reconciler.node.agent.join import join
from reconciler.protocols.agents import AgentRecord, Invitation
from solver.model.cluster import NodeName
from tests.contracts.simulated_worlds import NODES
from tests.reconciler.api.conftest import NOW, TOKEN, Site
from tests.reconciler.api.web import WEB
from tests.reconciler.backends.baremetal.trust import HOUR, LaterClock, Trust, door

NODE = NODES[0].name


def test_a_token_is_made_for_a_node_that_there_is(site: Site, client: Client) -> None:
    made = client.agents.token(NODE, "2h")
    token = read_token(made.token)
    assert (made.node, token.node, token.root) == (NODE, NODE, site.agents.authority.pin)
    (invitation,) = site.store.agents.invitations()
    assert (invitation.token_hash, invitation.by, invitation.until) == (token.hash, "alice", made.until)
    assert made.until - invitation.at == 2 * HOUR
    assert [(event.kind, event.actor) for event in site.store.history.events(NODE)] == [("agent-invited", "alice")]
    kept = Path(site.store.database.place)
    assert all(token.secret.encode() not in file.read_bytes() for file in kept.parent.glob(f"{kept.name}*"))
    with pytest.raises(ApiError, match=rf"There is no node of that name\. Did you mean {NODE}"):
        client.agents.token(f"{NODE}x")


@pytest.mark.parametrize(
    ("until", "problem"), [("169h", "168h at most"), ("soon", "neither a span"), ("0s", "not in the future")]
)
def test_a_token_does_not_last_for_ever(site: Site, client: Client, until: str, problem: str) -> None:
    with pytest.raises(ApiError, match=problem):
        client.agents.token(NODE, until)
    assert site.store.agents.invitations() == ()


def test_how_agents_stand() -> None:
    agents = (
        AgentRecord(NodeName("b"), 1, NOW, NOW, NOW.after(HOUR)),
        AgentRecord(NodeName("c"), 2, NOW, NOW, NOW.after(HOUR), NOW, "ada"),
        AgentRecord(NodeName("d"), 1, NOW, NOW, NOW),
    )
    invitations = (
        Invitation("1", NodeName("a"), "ada", NOW, NOW.after(5)),
        Invitation("2", NodeName("c"), "ada", NOW, NOW.after(6)),
        Invitation("3", NodeName("e"), "ada", NOW.after(-5), NOW),
    )
    views = list(agent_views(agents, invitations, NOW))
    assert [(view.node, view.state, view.invited_until) for view in views] == [
        ("a", "invited", NOW.after(5)),
        ("b", "joined", None),
        ("c", "revoked", NOW.after(6)),
        ("d", "expired", None),
    ]


def test_without_agents_it_is_said(site: Site) -> None:
    with (
        ApiServer(replace(site.services(), agents=None), Guard(TOKEN, user="alice")) as server,
        Client(server.url, TOKEN) as client,
        pytest.raises(ApiError, match="This control plane has no agents"),
    ):
        client.agents.all()


def test_from_the_token_to_the_revocation(
    site: Site, server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUORATE_SERVER", server.url)
    monkeypatch.setenv("QUORATE_TOKEN", TOKEN)
    assert run(["agents", "list"]) == 0
    assert "no agents" in capsys.readouterr().out
    assert run(["agents", "token", NODE, "--for", "10m"]) == 0
    token, identity = tmp_path / "token", tmp_path / "node" / "identity.pem"
    token.write_text(capsys.readouterr().out)
    with door(trust_of(site)) as port:
        arguments = ["agents", "join", "--server", f"127.0.0.1:{port}", "--identity", str(identity)]
        assert run([*arguments, "--token-file", str(token)]) == 0
        assert f"joined as {NODE}; the certificate is good until" in capsys.readouterr().out
        assert run([*arguments, "--token-file", str(token)]) == 6
        assert "used before, with another key" in capsys.readouterr().err
        assert run(arguments) == 1
        assert "neither --token-file nor QUORATE_JOIN_TOKEN is given" in capsys.readouterr().err
        (tmp_path / "other").write_bytes(b"\xff")
        assert run([*arguments, "--token-file", str(tmp_path / "other")]) == 1
        monkeypatch.setenv("QUORATE_JOIN_TOKEN", "nonsense")
        assert run(arguments) == 1
        assert "no join token" in capsys.readouterr().err
    assert run([*arguments, "--token-file", str(token)]) == 8
    capsys.readouterr()
    assert run(["agents", "revoke", NODE]) == 0
    assert capsys.readouterr().out == f"{NODE}: revoked. A new token lets it join again\n"
    assert run(["agents", "revoke", NODE, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"][0]["revokedBy"] == "alice"
    assert run(["agents", "list"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == [NODE, "revoked"]
    assert [event.kind for event in site.store.history.events(NODE)] == [
        "agent-invited",
        "agent-joined",
        "agent-revoked",
    ]
    assert run(["agents", "revoke", "nobody"]) == 1


def test_a_node_does_not_join_in_place_of_another(
    site: Site, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where a token was taken for that of the neighbour."""
    first, second = NODES[0].name, NODES[1].name
    identity, token = tmp_path / "node" / "identity.pem", tmp_path / "token"
    with door(trust_of(site)) as port:
        arguments = ["agents", "join", "--identity", str(identity), "--token-file", str(token), "--server"]
        token.write_text(client.agents.token(first).token)
        assert run([*arguments, f"127.0.0.1:{port}"]) == 0
        before = identity.read_bytes()
        token.write_text(client.agents.token(second).token)
        assert run([*arguments, f"127.0.0.1:{port}"]) == 1
        assert f"it is {first}'s, and the token is for {second}" in capsys.readouterr().err
        assert identity.read_bytes() == before
        token.write_text(client.agents.token(first).token)
        assert run([*arguments, f"127.0.0.1:{port}"]) == 0  # anew
        assert identity.read_bytes() != before
        assert run(["agents", "join", "--identity", str(identity), "--server", f"127.0.0.1:{port + 65536}"]) == 64


def test_a_node_is_no_user(site: Site, server: ApiServer, client: Client, tmp_path: Path) -> None:
    token = client.agents.token(NODE).token
    with door(trust_of(site)) as port:
        join("127.0.0.1", port, read_token(token), tmp_path / "node" / "identity.pem")
    certificate = read_identity(tmp_path / "node" / "identity.pem").certificate
    for tried in (token, fingerprint(certificate), pem_of(certificate).decode().replace("\n", "")):
        answer = WEB.get(f"{server.url}/v1/whoami", headers={"Authorization": f"Bearer {tried}"})
        assert answer.status_code == 401


def test_rotating_is_done_beside_the_authority(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    path, before = site.secrets / "agents" / "authority.pem", site.agents.authority.pin
    assert run(["agents", "rotate", "--authority", str(path)]) == 0
    assert "signs from" in capsys.readouterr().out
    assert len(AuthorityFile(path).roots()) == 2
    assert site.agents.authority.pin == before
    path.chmod(0o644)
    assert run(["agents", "rotate", "--authority", str(path)]) == 1
    assert "chmod 600" in capsys.readouterr().err


def trust_of(site: Site) -> Trust:
    """The side of the control plane where agents come in."""
    file = AuthorityFile(site.secrets / "agents" / "authority.pem")
    return Trust(site.store, file, LaterClock(), site.agents.authority)
