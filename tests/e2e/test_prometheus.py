"""A real Prometheus scrapes a real control plane, with the token of a user and with that of metrics alone, and answers queries."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from hack.ports import free_ports
from reconciler.access.token_file import read_token
from reconciler.client import Client
from tests.e2e.control_plane import POLICY, ControlPlane, sh, submit, until
from tests.house.test_metrics import table
from tests.house.test_observability import RULES, shown
from tests.reconciler.gitops.source.origin import Origin

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus is not installed (Debian's prometheus)"),
]

POD_ADDRESS: Final = "127.0.0.2"
"""Of this machine, and no name of the server: what a pod's address is to it."""
TOKEN: Final = "m" * 40
POLICIES: Final = {
    **POLICY,
    "policies/class.yaml": "apiVersion: quorate.dev/v1\nkind: PriorityClass\nmetadata: {name: standard}\nspec: {value: 100}\n",
    "policies/scheduling.yaml": (
        "apiVersion: quorate.dev/v1\nkind: SchedulingPolicy\nmetadata: {name: rounds}\n"
        "spec: {defaultPriorityClass: standard}\n"
    ),
}


class Prometheus:
    """Asked over its HTTP API."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        """None while it does not answer."""
        try:
            with urlopen(f"{self.url}/api/v1/{path}?{urlencode(query)}", timeout=5) as answer:
                told = json.load(answer)
        except OSError:
            return None
        assert told["status"] == "success", told
        return told["data"]

    def value(self, query: str) -> float | None:
        """Of a query with one series; None: it has none."""
        found = (self.get("query", query=query) or {"result": []})["result"]
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None


@contextmanager
def prometheus(folder: Path, jobs: list[dict[str, Any]]) -> Iterator[Prometheus]:
    """One that scrapes these every second, with the rules that are shipped."""
    (port,) = free_ports(1)
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": jobs,
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        *("prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}"),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield Prometheus(port)
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    tmp_path = tmp_path_factory.mktemp("plane")
    origin = Origin(tmp_path / "origin")
    origin.commit(POLICIES)
    made = ControlPlane(origin.folder, tmp_path / "state")
    token = tmp_path / "metrics-token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    made.start(*("--listen", "0.0.0.0:0", "--metrics-listen", "0.0.0.0:0", "--metrics-token", str(token)))
    yield made
    made.end()


def port_of(plane: ControlPlane, event: str) -> int:
    port: int | None = urlsplit(plane.logged(event)[-1]["url"]).port
    assert port is not None
    return port


def scraped(plane: ControlPlane, token: str = TOKEN) -> str:
    asked = Request(
        f"http://{POD_ADDRESS}:{port_of(plane, 'listening-for-metrics')}/metrics",
        headers={"Authorization": f"Bearer {token}"},
    )
    with urlopen(asked, timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def test_a_real_prometheus_reads_all_of_it_and_answers(plane: ControlPlane, tmp_path: Path) -> None:
    api, own = port_of(plane, "listening"), port_of(plane, "listening-for-metrics")
    jobs: list[dict[str, Any]] = [
        {
            "job_name": "api",
            "authorization": {"credentials_file": str(plane.folder.token)},
            "static_configs": [{"targets": [f"{POD_ADDRESS}:{api}"]}],
        },
        {
            "job_name": "own",
            "authorization": {"credentials": TOKEN},
            "static_configs": [{"targets": [f"{POD_ADDRESS}:{own}"]}],
        },
        {"job_name": "stranger", "static_configs": [{"targets": [f"{POD_ADDRESS}:{own}"]}]},
    ]
    with prometheus(tmp_path, jobs) as asked:
        with Client(f"http://127.0.0.1:{api}", read_token(plane.folder.token)) as client:
            until("the policy is in force", lambda: client.status().last_applied_revision)
            submit(client, ["runs", "runs-too"], sh("sleep 600", gpus=4))
            submit(client, ["waits"], sh("sleep 600"))
            until("two run", lambda: asked.value('sum(quorate_jobs_running{job="own"})') == 2)
            until("one waits", lambda: asked.value('sum(quorate_jobs_pending{job="own",queue="team"})') == 1)
            for name in ("runs", "waits"):
                client.cancel(name)
            submit(client, ["fails"], sh("exit 3"))
            until("one has failed", lambda: asked.value('sum(quorate_job_failures_total{job="own",kind="exit"})'))
            until("it is up", lambda: asked.value('up{job="api"}') == 1)
        told = asked.value
        assert told('up{job="own"}') == 1
        assert told('up{job="stranger"}') == 0
        assert told('quorate_leader{job="own"}') == 1
        assert told('quorate_job_starts_total{job="own",queue="team"}') == 3
        assert told('quorate_job_queue_seconds_count{job="own",priority_class="standard"}') == 3
        until("one still runs", lambda: told('quorate_queue_gpus_held{job="own",queue="team",gpu_type="H100"}') == 4)
        assert told('quorate_store_transaction_seconds_count{job="own",kind="write"}')
        assert told('count({__name__=~"quorate_.*_created"})') is None
        # Which series there are of jobs that wait changes from scrape to scrape; of all else there are as many.
        counts = 'count(count by (job, __name__) ({__name__=~"quorate_.*",__name__!="quorate_jobs_pending"})) by (job)'
        until("both tell the same", lambda: told(f"count(count_values('n', {counts}))") == 1)
        errors = {
            each["labels"]["job"]: each["lastError"] for each in asked.get("targets", state="active")["activeTargets"]
        }
        assert (errors["api"], errors["own"]) == ("", "")
        assert "401" in errors["stranger"]
        until("rules are evaluated", lambda: told("count(quorate:gpus_allocated:ratio)"))
        assert {rule["health"] for group in asked.get("rules")["groups"] for rule in group["rules"]} == {"ok"}
        for expression in shown():
            assert asked.get("query", query=expression) is not None, expression


def test_what_is_scraped_is_as_the_table_says_and_as_promtool_likes_it(plane: ControlPlane) -> None:
    until("it has decided", lambda: "quorate_queue_gpus_held" in scraped(plane))
    text, said = scraped(plane), table()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = frozenset(label for sample in family.samples for label in sample.labels) - {"le"}
        assert name in said, name
        assert said[name].type == family.type, name
        assert labels in (said[name].labels, frozenset()), name
    promtool = shutil.which("promtool")
    assert promtool is not None
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
