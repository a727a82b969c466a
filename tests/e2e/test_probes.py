"""The probes that deploy/ ships, asked as a kubelet asks them, of a real process that was started as deploy/ starts it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from hack.kubernetes.shipped import DEPLOY, objects_in
from hack.ports import free_ports
from tests.drawn import first
from tests.e2e.control_plane import POLICY, ControlPlane, in_postgresql, leads, until
from tests.reconciler.gitops.source.origin import Origin

KINDS: Final = ("startupProbe", "livenessProbe", "readinessProbe")
POD_ADDRESS: Final = "10.244.1.7"
PROBE: Final = re.compile(
    r"^(?P<indent> *)(?P<probe>(?:startup|liveness|readiness)Probe:.*\n(?:(?P=indent) +.*\n)+)", re.MULTILINE
)
PORTS: Final = re.compile(r"^ +ports:\n((?: +- \{name: .*containerPort.*\n)+)", re.MULTILINE)


class Shipped:
    """The containers of one file that have probes. Templates of the chart are read as they are: probes take no values."""

    def __init__(self, path: Path) -> None:
        self.name = str(path.relative_to(DEPLOY))
        text = path.read_text()
        self.containers = _templated(text) if "{{" in text else [each for one in objects_in(text) for each in _in(one)]
        found = sum(kind in each for each in self.containers for kind in KINDS)
        assert found == len(re.findall("Probe", text)), f"{path}: a probe is not understood"

    def __str__(self) -> str:
        return self.name


def _in(value: Any) -> Iterator[dict[str, Any]]:
    """Whatever has probes, however deep."""
    if isinstance(value, dict):
        if any(kind in value for kind in KINDS):
            yield value
        for each in value.values():
            yield from _in(each)
    elif isinstance(value, list):
        for each in value:
            yield from _in(each)


def _templated(text: str) -> list[dict[str, Any]]:
    """The one container of a template."""
    probes = "".join(
        re.sub(f"^{each['indent']}", "", each["probe"], flags=re.MULTILINE) for each in PROBE.finditer(text)
    )
    if not probes:
        return []
    (ports,) = PORTS.findall(text)
    return [{**yaml.safe_load(probes), "ports": yaml.safe_load(ports)}]


def shipped() -> list[Shipped]:
    """Each file once: the chart has links to the base, and what the overlay for observing changes has no probes."""
    files = sorted(path for path in DEPLOY.rglob("*.yaml") if path.resolve() == path)
    return [found for found in map(Shipped, files) if found.containers]


def asked(probe: dict[str, Any], container: dict[str, Any], listening: dict[int, int]) -> int:
    """The status that a kubelet gets: it names the pod's address and port as Host, has no token, and looks at no certificate."""
    get = probe["httpGet"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    port = ports.get(get["port"], get["port"])
    there = "127.0.0.1", listening[port]
    https = get.get("scheme") == "HTTPS"
    unverified = ssl._create_unverified_context()
    connection = HTTPSConnection(*there, context=unverified) if https else HTTPConnection(*there)
    headers = {"Host": f"{POD_ADDRESS}:{port}", "User-Agent": "kube-probe/1.33", "Accept": "*/*", "Connection": "close"}
    headers |= {each["name"]: each["value"] for each in get.get("httpHeaders", ())}
    try:
        connection.request("GET", get["path"], headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def passes(status: int) -> bool:
    """As Kubernetes has it."""
    return 200 <= status < 400


def test_probes_are_shipped_for_both_ways_to_install() -> None:
    found = {each.name: [set(KINDS) <= set(one) for one in each.containers] for each in shipped()}
    assert found == {"kubernetes/deployment.yaml": [True], "helm/quorate/templates/deployment.yaml": [True]}


@pytest.mark.parametrize("file", first(1, shipped()), ids=str)
def test_the_probes_that_are_shipped_are_passed(tmp_path: Path, file: Shipped) -> None:
    """Before there is a policy it lives and is not ready; with one it is both."""
    origin = Origin(tmp_path / "policy")
    plane = ControlPlane(origin.folder, tmp_path / "state")
    (port,) = free_ports(1)
    try:
        plane.start(f"--listen=0.0.0.0:{port}", "--allow-host=quorate.quorate-system.svc")
        (container,) = file.containers
        listening = {7717: port}

        def status(kind: str) -> int:
            return asked(container[kind], container, listening)

        assert [passes(status(kind)) for kind in KINDS] == [True, True, False]
        origin.commit(POLICY)
        until("it is ready", lambda: passes(status("readinessProbe")))
        assert [passes(status(kind)) for kind in KINDS] == [True, True, True]
    finally:
        plane.end()


@pytest.mark.postgresql
def test_one_that_stands_by_is_ready(origin: Origin, tmp_path: Path) -> None:
    """A rolling update waits until each new control plane is ready, and takes the leader away after that."""
    with in_postgresql(tmp_path) as (store, _):
        leader, standby = (ControlPlane(origin.folder, tmp_path / name) for name in ("leader", "standby"))
        try:
            leader.start(*store, "--tasks", str(leader.folder.tasks)).until_ready()
            standby.start(*store, "--tasks", str(leader.folder.tasks))
            with leader.client() as first, standby.client() as second:
                until("it is ready", second.ready)
                assert (leads(first), leads(second)) == (True, False)
                assert first.ready()
        finally:
            leader.end()
            standby.end()
