"""What no file may say: where it was made, where its parts were fetched from, addresses that nobody else can reach."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from tests.house.tracked import objections, tracked

MACHINE_PATH = re.compile(r"(?<![\w.~}])/(?:work|home|root|Users|tmp)/\w")
URL = re.compile(r"https?://[^\s\"'`)<>\]}|,]+")
PUBLIC = {
    "code.forgejo.org",
    "docs.gitea.com",
    "docs.github.com",
    "docs.gitlab.com",
    "docs.oasis-open.org",
    "git-lfs.github.com",
    "github.com",
    "json-schema.org",
    "keepachangelog.com",
    "packaging.python.org",
    "semver.org",
    "www.apache.org",
    "www.w3.org",
}
"""Hosts of the world's own documentation, and of actions. No package index: which to ask is the user's to say."""

LOCAL = {"127.0.0.1", "localhost", "::1"}


def machine_paths(text: str) -> list[str]:
    return MACHINE_PATH.findall(text)


def unreachable_hosts(text: str) -> set[str]:
    return {host for url in URL.findall(text) if (host := _host(url)) and not _is_known(host)}


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    assert objections(tracked(), lambda path: machine_paths(_text(path))) == {}


def test_urls_lead_to_public_documentation_or_nowhere() -> None:
    assert objections(tracked(), lambda path: unreachable_hosts(_text(path))) == {}


def test_the_patterns_find_what_they_look_for() -> None:
    # In pieces, or this file would be found too.
    assert machine_paths("cd /home" + "/somebody/x; cat '/work" + "/x'") != []
    assert machine_paths("~/work/x, ./tmp/x, a/root/x, {folder}/home/x") == []
    assert unreachable_hosts("index-url = https:" + "//packages.internal/simple") == {"packages.internal"}
    assert unreachable_hosts("http://127.0.0.1:7717/v1, https://host, http://[::1]:80, https://a.example/b") == set()


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:  # Half an address, as in the tests of what is refused.
        return ""


def _is_known(host: str) -> bool:
    placeholder = "{" in host or host == "host"
    return placeholder or host in PUBLIC | LOCAL or host.endswith((".example", "example.com"))
