"""What a pod is given: its token and its cluster's authority, replaced in their files while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hack.kubernetes.certificates import Authority
from reconciler.kubernetes.client.refusals import CredentialsError
from reconciler.kubernetes.client.service_account import TOKEN_READ_EVERY_S, in_cluster
from tests.kubernetes.kubeconfigs import AUTHORITY, until
from tests.kubernetes.test_pace import ManualClock

SERVICE = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


def mounted(folder: Path) -> Path:
    (folder / "ca.crt").write_bytes(AUTHORITY.pem)
    (folder / "token").write_text("first\n")
    return folder / "token"


def test_token_and_authority_are_read_anew_each_minute(tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock()
        token = mounted(tmp_path)
        credentials = in_cluster(SERVICE, clock, tmp_path)
        way = await credentials.transport()
        assert way.server == "https://[fd00::1]:443"
        token.write_text("second\n")
        (tmp_path / "ca.crt").write_bytes(Authority().pem)
        assert await credentials.authorization() == "Bearer first"
        assert len(way.ssl_context.get_ca_certs()) == 1
        clock.now_s += TOKEN_READ_EVERY_S
        await credentials.authorization()
        await until(lambda: credentials._header() == "Bearer second")
        assert await credentials.authorization() == "Bearer second"
        assert len(way.ssl_context.get_ca_certs()) == 2

    asyncio.run(story())


@pytest.mark.parametrize("spoilt", ["gone", "empty", "blank", "folder"])
def test_a_token_that_can_not_be_read_for_a_moment_is_that_of_before(tmp_path: Path, spoilt: str) -> None:
    async def story() -> None:
        clock = ManualClock()
        token = mounted(tmp_path)
        credentials = in_cluster(SERVICE, clock, tmp_path)
        await credentials.transport()
        token.unlink()
        if spoilt in ("empty", "blank"):
            token.write_text({"empty": "", "blank": "\n"}[spoilt])
        elif spoilt == "folder":
            token.mkdir()
        clock.now_s += TOKEN_READ_EVERY_S
        assert await credentials.authorization() == "Bearer first"
        await until(lambda: credentials._failure is not None)
        assert await credentials.authorization() == "Bearer first"
        if spoilt == "folder":
            token.rmdir()
        token.write_text("second\n")
        clock.now_s += TOKEN_READ_EVERY_S
        await credentials.authorization()
        await until(lambda: credentials._header() == "Bearer second")

    asyncio.run(story())


def test_a_pod_without_its_files_is_told_where_they_should_be(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match=f"{tmp_path}: can't be read: .* Check that the service account's token"):
        asyncio.run(in_cluster(SERVICE, ManualClock(), tmp_path).transport())


def test_outside_a_cluster_there_is_no_account() -> None:
    with pytest.raises(CredentialsError, match="Name a kubeconfig"):
        in_cluster({}, ManualClock())
