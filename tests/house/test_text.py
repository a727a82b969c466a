"""What no file may say: where it was made, where its parts were fetched from, addresses that nobody else can reach."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.house.tracked import name_of, tracked

MACHINE_PATH = re.compile(r"(?<![\w.~}])/(?:work|home|root|Users|tmp)/\w")
URL = re.compile(r"https?://[^\s\"'`)<>\]}|,]+")
PUBLIC = {
    "docs.github.com",
    "git-lfs.github.com",
    "github.com",
    "json-schema.org",
    "keepachangelog.com",
    "semver.org",
    "www.apache.org",
    "docs.kernel.org",
    "docs.nvidia.com",
    "docs.pytorch.org",
    "www.usenix.org",
}
"""Hosts of the world's own documentation. No package index: which one to ask is the user's to say."""

LOCAL = {"127.0.0.1", "localhost", "::1"}
TEXTS = [path for path in tracked() if b"\0" not in path.read_bytes()]


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_no_file_knows_the_machine_it_was_written_on(path: Path) -> None:
    assert MACHINE_PATH.findall(path.read_text(errors="replace")) == []


@pytest.mark.parametrize("path", TEXTS, ids=name_of)
def test_urls_lead_to_public_documentation_or_nowhere(path: Path) -> None:
    hosts = {_host(url) for url in URL.findall(path.read_text(errors="replace"))}
    assert {host for host in hosts if host and not _is_known(host)} == set()


@pytest.mark.parametrize("path", tracked("tests/scenarios/*.yaml"), ids=name_of)
def test_a_scenario_says_why_it_is_there(path: Path) -> None:
    assert len(yaml.safe_load(path.read_text())["why"].split()) >= 5


def test_the_patterns_find_what_they_look_for() -> None:
    somebody = "/home" + "/somebody/x"
    assert MACHINE_PATH.search(f"cd {somebody}")
    assert not MACHINE_PATH.search("~/work/x, ./tmp/x, a/root/x")
    assert not _is_known(_host("https://packages.corporation.internal/simple"))
    assert _is_known(_host("http://127.0.0.1:7717/v1"))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # Half an address, as in the tests of what is refused.
        return ""


def _is_known(host: str) -> bool:
    placeholder = host.isupper() or "{" in host or host == "host"
    return placeholder or host in PUBLIC | LOCAL or host.endswith((".example", "example.com"))
