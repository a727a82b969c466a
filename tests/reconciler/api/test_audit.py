"""What users did, and the chain for those who verify it elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.access.audit_keys import AuditKeyFile
from reconciler.analysis.audit.verification import verified
from reconciler.client import ApiError, Client
from reconciler.protocols.history import Event
from reconciler.store.audit import AuditChain
from reconciler.store.history import SqlHistory
from tests.reconciler.api.conftest import NOW, TOKEN, Site
from tests.reconciler.api.people import client_of, serving


@pytest.fixture
def keys(site: Site, tmp_path: Path) -> AuditKeyFile:
    """What is recorded is linked with them."""
    made = AuditKeyFile(tmp_path / "audit-keys")
    made.begin()
    site.store = replace(site.store, history=SqlHistory(site.store.database, AuditChain(made.keys)))
    return made


def record(site: Site, number: int = 7) -> None:
    site.store.history.record_events(
        Event(NOW.after(each), "held", f"job-{each}", "because", "ada" if each % 2 else "bob") for each in range(number)
    )


def test_the_chain_is_read_page_by_page_and_verified(site: Site, keys: AuditKeyFile) -> None:
    record(site, 1_234)
    with serving(site) as server, Client(server.url, TOKEN) as client:
        entries, anchor = list(client.audit.entries()), client.audit.page("rounds").anchor
        report = verified(entries, keys.keys(), (anchor,))
        assert (report.is_whole, report.chains[0].records, report.anchors) == (True, 1_234, 1)
        with pytest.raises(ApiError) as refused:
            client.audit.page("events", "bm9uZQ")
        assert refused.value.problem.code == "bad-cursor"


def test_events_are_found_over_all_subjects(site: Site) -> None:
    record(site)
    with serving(site) as server, Client(server.url, TOKEN) as client:
        page = client.audit.events(who="ada", what=("held",), limit=2)
        assert [kept.event.subject for kept in page.items] == ["job-5", "job-3"]
        rest = client.audit.events(who="ada", what=("held",), limit=2, cursor=page.next)
        assert ([kept.event.subject for kept in rest.items], rest.next) == (["job-1"], "")
        assert client.audit.events(since=str(NOW.after(6))).items[0].event.subject == "job-6"
        assert client.audit.events(since="1h").items == ()
        with pytest.raises(ApiError) as refused:
            client.audit.events(since="yesterday")
        assert refused.value.problem.code == "invalid-parameter"


def test_a_server_without_a_chain_says_so(site: Site) -> None:
    site.store = replace(site.store, audit=None)  # type: ignore[arg-type]
    with serving(site) as server, client_of(server, "admin") as client, pytest.raises(ApiError) as refused:
        client.audit.page("events")
    assert refused.value.problem.code == "no-audit"
