"""docs/kubernetes-install.md, word for word, on an API server without Quorate: from `kubectl create namespace` to uninstalling it.

What is not here is replaced: container engines, kind and ssh-keyscan do nothing; `helm`, where there is none, is kubectl with the
base of the same objects; controllers and kubelets are those of deployed.py. Dots for what is a reader's own are filled in.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hack.kubernetes.cluster import Cluster, running
from hack.kubernetes.components import ComponentMissingError, found, place
from hack.kubernetes.shipped import ACCOUNT, BASE, DEPLOY, GROUPS
from hack.release.version import version
from reconciler.kubernetes.client.api import Api
from reconciler.kubernetes.objects.resource import PODS
from tests.e2e.first_steps import ROOT, Terminals, console_blocks, terminals
from tests.kubernetes.deployed import LOOK_EVERY_S, Deployed, controlled
from tests.kubernetes.kubelet import kubelet
from tests.kubernetes.sessions import ADMINS, NAMESPACES, REAL, SOON_S, session
from tests.reconciler.gitops.source.origin import Origin

pytestmark = REAL

PAGE = "\n".join((ROOT / f"docs/kubernetes-{name}.md").read_text() for name in ("install", "operating"))
SPACE = "quorate-system"
NOTHING = ("docker", "kind", "podman", "ssh-keyscan")
"""Programs that stand for what is not here."""
WITHOUT_HELM = f"""#!/bin/sh
set -e
case $1 in
install)
  kubectl apply -k {BASE} ;;
upgrade)
  for said; do case $said in
  image.digest=*) kubectl -n {SPACE} set image deployment/quorate quorate=quorate@${{said#image.digest=}} ;;
  esac; done ;;
rollback)
  kubectl -n {SPACE} set image deployment/quorate quorate=quorate:{version()} ;;
uninstall)
  kubectl delete -k {BASE} ;;
esac
"""
PLAIN_NODE = {"cpu": "16", "memory": "64Gi", "pods": "110"}


def section(title: str) -> list[str]:
    """The console blocks of one."""
    return console_blocks(PAGE.split(f"## {title}\n")[1].split("\n## ")[0])


class Site(NamedTuple):
    cluster: Cluster
    shells: Terminals
    folder: Path
    """For what is not the reader's: processes, repositories."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    try:
        kubectl = found(place(), ("kubectl",)).path("kubectl")
    except ComponentMissingError as error:
        pytest.skip(str(error))
    folder, programs, own = (tmp_path / name for name in ("checkout", "programs", "own"))
    for each in (folder / ".kube", programs, own, tmp_path / "cluster"):
        each.mkdir(parents=True)
    (folder / "deploy").symlink_to(DEPLOY)
    for name in NOTHING:
        program(programs / name, "#!/bin/sh\n")
    if place().has("helm"):
        (programs / "helm").symlink_to(place().path("helm"))
    else:
        program(programs / "helm", WITHOUT_HELM)
    subprocess.run(["git", "init", "--quiet", "--bare", own / "web"], check=True)
    path = f"{programs}:{kubectl.parent}:{ROOT / '.venv/bin'}:/usr/bin:/bin"
    rewritten = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{own / 'web'}.insteadOf"}
    rewritten["GIT_CONFIG_VALUE_0"] = "https://git.example.com/you/my-cluster.git"
    with running(found(place()), tmp_path / "cluster") as cluster:
        shutil.copy(cluster.kubeconfig("admin", ADMINS), folder / ".kube/config")
        with terminals(folder, PATH=path, TOKEN="hidden", **rewritten) as shells:
            yield Site(cluster, shells, own)


def program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


@asynccontextmanager
async def followed(site: Site, repository: Path, nodes: list[str]) -> AsyncIterator[tuple[Api, Deployed]]:
    """Somebody sits there, with nodes that have no GPUs yet; what is installed follows the repository."""
    kubeconfig = Path(shutil.copy(site.cluster.kubeconfig(ACCOUNT, GROUPS), site.folder / "account"))
    async with session(site.cluster) as api, kubelet(api, nodes, PLAIN_NODE):
        deployed = Deployed(api, SPACE, site.folder, kubeconfig, repository)
        async with controlled(site.cluster, deployed):
            yield api, deployed


async def typed(site: Site, command: str) -> str:
    """What it prints. Dots of the page are filled in by what is needed there."""
    filled = command.replace("sha256:...", f"sha256:{'a' * 64}").replace("=...", "=https://git.example.com/policy.git")
    return await asyncio.to_thread(site.shells.run, filled)


async def asked(site: Site, block: str) -> str:
    """What the leader says, asked again while there is none, as the page says."""
    rollout, leader, status = block.splitlines()
    await typed(site, rollout)
    async with asyncio.timeout(SOON_S):
        while not (await typed(site, f"{leader}\necho $leader")).strip():
            await asyncio.sleep(LOOK_EVERY_S)
    return await typed(site, f"{leader}\n{status}")


def test_a_gang_starts_by_following_the_section_without_gpus(site: Site) -> None:
    cluster, nodes, install, gang = section("Try it without GPUs")

    async def story() -> None:
        async with followed(site, site.folder / "web", ["quorate-worker", "quorate-worker2"]) as (api, _):
            await typed(site, cluster)
            await typed(site, nodes)
            await typed(site, install)
            create, *looks = re.split(r"(?=^kubectl )", gang, flags=re.MULTILINE)
            apply, wide, describe, queues = looks
            await typed(site, create)
            await typed(site, apply)
            async with asyncio.timeout(SOON_S):
                while (await typed(site, wide)).count("Running") != 4:
                    await asyncio.sleep(LOOK_EVERY_S)
            pods = await api.get(PODS.path("default"), dict[str, Any])
            assert {pod["spec"]["nodeName"] for pod in pods["items"]} <= {"quorate-worker", "quorate-worker2"}
            async with asyncio.timeout(SOON_S):
                while "bound to quorate-worker" not in await typed(site, describe):
                    await asyncio.sleep(LOOK_EVERY_S)
                while not re.search(r"^team-a +organisation +8 +8 ", await typed(site, queues), re.MULTILINE):
                    await asyncio.sleep(LOOK_EVERY_S)

    asyncio.run(story())


def test_it_is_installed_looked_at_upgraded_and_taken_away_by_following_the_page(site: Site) -> None:
    secret, helm, ask = (section("Install")[number] for number in (0, 1, -1))
    by_https, by_ssh = re.split(r"^# or ssh.*\n", secret, flags=re.MULTILINE)
    upgrade, back, uninstall = section("Upgrade and uninstall")
    origin = Origin(site.folder / "policy")
    origin.commit({"policies/q.yaml": "apiVersion: quorate.dev/v1\nkind: Queue\nmetadata: {name: q}\nspec: {}\n"})

    async def story() -> None:
        async with followed(site, origin.folder, ["gpu-node"]) as (api, deployed):
            await typed(site, "kubectl label node gpu-node nvidia.com/gpu.present=true")
            await typed(site, by_https)
            await typed(site, helm)
            assert re.search(r"^Leading +True", await asked(site, ask), re.MULTILINE)
            for block in (*section("GPU nodes are Quorate's"), *section("The policy in the cluster")):
                await typed(site, block)
            assert "policies__q.yaml" in await typed(site, section("The policy in the cluster")[0])
            for change in (upgrade.replace("sha256:...", f"sha256:{'b' * 64}"), back):
                before = {pod.name for pod in deployed.pods}
                await typed(site, change)
                await asked(site, ask)
                assert not before & {pod.name for pod in deployed.pods}
            await typed(
                site, f"kubectl -n {SPACE} delete secret quorate-git; ssh-keygen -q -t ed25519 -N '' -f id_ed25519"
            )
            await typed(site, by_ssh)
            await typed(
                site, uninstall.replace("kubectl delete namespace", "kubectl delete --ignore-not-found namespace")
            )
            spaces = (await api.get(NAMESPACES.path(), dict[str, Any]))["items"]
            assert SPACE not in {each["metadata"]["name"] for each in spaces}

    asyncio.run(story())
