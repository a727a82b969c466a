"""A real API server with its etcd on loopback, for as long as a test run lasts; no nodes, no other components."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec

from hack.kubernetes import guard
from hack.kubernetes.certificates import LOOPBACK, Authority, private_pem, write_private
from hack.kubernetes.components import API_SERVER, ETCD, Place
from hack.ports import free_ports

READY_S = 120.0
"""2 to 4 seconds on an idle machine."""
LOG_SHOWN_LINES = 15
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    # What intervals.py has to see of pods: what a Binding says, what became of a deletion, and who has ended.
    "rules": [
        {"level": "Request", "verbs": ["create"], "resources": [{"resources": ["pods/binding"]}]},
        {"level": "Request", "verbs": ["patch", "update"], "resources": [{"resources": ["pods/status"]}]},
        {"level": "RequestResponse", "verbs": ["delete"], "resources": [{"resources": ["pods"]}]},
        {"level": "Metadata"},
    ],
}
GATES = ("GenericWorkload",)
"""Kubernetes' own PodGroups."""
WITHOUT_CACHE = "configmaps"
"""Its watches read etcd itself, so that a compaction of etcd is a 410 at once: how that is handled can be tried on it."""


class ClusterNotReadyError(Exception):
    """It did not start; the message says where the logs are, and how they end."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """`server` and `etcd` are URLs. `folder` has the logs (etcd.log, kube-apiserver.log) and the audit log."""

    server: str
    etcd: str
    folder: Path
    authority: Authority

    @property
    def audit_log(self) -> Path:
        """One line of JSON for each request that was answered, or, of a watch, begun."""
        return self.folder / "audit.log"

    def kubeconfig(self, user: str, groups: tuple[str, ...] = ()) -> Path:
        """A kubeconfig for this user, who may do what RBAC grants it and its groups; system:masters may do anything."""
        certificate, key = self.authority.client(user, groups)
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": user}}],
            "clusters": [
                {"name": "tests", "cluster": {"server": self.server, **_encoded("certificate-authority", self.authority.pem)}}
            ],
            "users": [
                {"name": user, "user": {**_encoded("client-certificate", certificate), **_encoded("client-key", key)}}
            ],
        }  # fmt: skip
        return write_private(self.folder / f"{user}.kubeconfig", json.dumps(content).encode())


@contextmanager
def running(where: Place, folder: Path, *, audited: bool = True, gates: Sequence[str] = GATES) -> Iterator[Cluster]:
    """A cluster that is ready, until the end of the block or of this process, however it ends. Raises ClusterNotReadyError.

    `audited`: with an audit log, in which bindings are whole; whoever measures does without. `gates`: features of the API server
    that are switched on.
    """
    etcd_port, peer_port, port = free_ports(3)
    cluster = Cluster(f"https://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{etcd_port}", folder, Authority())
    peers = f"http://{LOOPBACK}:{peer_port}"
    etcd = [
        str(where.path(ETCD)),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={cluster.etcd}",
        f"--advertise-client-urls={cluster.etcd}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",  # nobody needs this data after the run
        "--log-level=warn",
    ]
    api_server = [
        str(where.path(API_SERVER)),
        *_api_server_flags(cluster, port),
        f"--feature-gates={','.join(f'{gate}=true' for gate in gates)}",
        *(_audit_flags(cluster) if audited else ()),
    ]
    guarded = guard.start({ETCD: etcd, API_SERVER: api_server}, folder)
    try:
        _wait_until_ready(cluster, guarded)
        yield cluster
    finally:
        guard.stop(guarded)


def _api_server_flags(cluster: Cluster, port: int) -> list[str]:
    folder = cluster.folder
    certificate, key = cluster.authority.server()
    accounts = write_private(folder / "accounts.key", private_pem(ec.generate_private_key(ec.SECP256R1())))
    return [
        f"--etcd-servers={cluster.etcd}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={write_private(folder / 'server.crt', certificate)}",
        f"--tls-private-key-file={write_private(folder / 'server.key', key)}",
        f"--client-ca-file={write_private(folder / 'authority.crt', cluster.authority.pem)}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.example",
        f"--service-account-key-file={accounts}",
        f"--service-account-signing-key-file={accounts}",
        "--service-cluster-ip-range=10.0.0.0/24",
        # No controllers run here: nobody would make service accounts for pods, or take the taint of a new node away.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
        f"--watch-cache-sizes={WITHOUT_CACHE}#0",
    ]


def _audit_flags(cluster: Cluster) -> list[str]:
    policy = cluster.folder / "audit-policy.json"
    policy.write_text(json.dumps(AUDIT_POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={cluster.audit_log}"]


def _wait_until_ready(cluster: Cluster, guarded: subprocess.Popen[bytes]) -> None:
    context = ssl.create_default_context(cadata=cluster.authority.pem.decode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    until_s = time.monotonic() + READY_S
    last = "no answer"
    while time.monotonic() < until_s and guarded.poll() is None:
        try:
            with opener.open(f"{cluster.server}/readyz", timeout=5):
                return
        except urllib.error.HTTPError as error:
            last = error.read().decode(errors="replace").strip().splitlines()[-1]
        except OSError as error:
            last = str(error)
        time.sleep(0.1)
    how = "has ended" if guarded.poll() is not None else f"is not ready after {READY_S:.0f} s: {last}"
    raise ClusterNotReadyError(f"The API server or its etcd {how}\n{_log_ends(cluster.folder)}")


def _log_ends(folder: Path) -> str:
    ends = []
    for log in sorted(folder.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()[-LOG_SHOWN_LINES:]
        ends.append("\n".join([f"{log}:", *lines]))
    return "\n".join(ends)


def _encoded(name: str, content: bytes) -> dict[str, str]:
    return {f"{name}-data": base64.b64encode(content).decode()}
