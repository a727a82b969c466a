"""What a user decides by hand and the event that says so are one write: a kill between the two leaves neither."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from reconciler.protocols.history import Event
from reconciler.store.store import open_store
from tests.reconciler.api.conftest import NOW, Site

KILLED = """
import os, signal, sys
from pathlib import Path
from reconciler.api.payloads import InterventionAsked
from reconciler.api.intervention_requests import InterventionRequests
from reconciler.model.intervention_record import Subject
from reconciler.store.history import SqlHistory
from reconciler.store.store import open_store
from tests.reconciler.api.conftest import Site

asked = InterventionAsked(reason="a fan is loud", until="4h")
SqlHistory.record_events = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
requests = InterventionRequests(Site(open_store(Path(sys.argv[1]))).services())
requests.begin("hold", [Subject("queue", "team")], asked, "ada")
"""


def test_a_kill_between_the_two_leaves_neither(tmp_path: Path) -> None:
    path = tmp_path / "quorate.db"
    open_store(path).close()
    ran = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, check=False, env=os.environ)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
    store = open_store(path)
    assert (store.interventions.newest(), store.history.events("team")) == ((), ())
    store.close()


def test_what_fails_in_the_block_undoes_all_of_it_and_the_next_is_on_its_own(site: Site) -> None:
    store = site.store
    with suppress(RuntimeError), store.database.together():
        store.history.record_event(Event(NOW, "queue-held", "team", "", "ada"))
        raise RuntimeError
    assert store.history.events("team") == ()
    with store.database.together():
        store.history.record_event(Event(NOW, "queue-held", "team", "", "ada"))
        assert store.history.events("team") == (), "nobody sees half of it"
    assert len(store.history.events("team")) == 1
    store.history.record_event(Event(NOW, "queue-released", "team", "", "ada"))
    assert len(store.history.events("team")) == 2
