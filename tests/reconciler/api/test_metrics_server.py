"""Metrics on an address of their own: one path, one token, any Host."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from reconciler.access.token_file import TokenFileError
from reconciler.api.guard import InsecureBindingError
from reconciler.api.metrics_server import MetricsServer
from reconciler.api.server import AddressError

TOKEN = "t" * 40


class Secret:
    """A file, as it is now."""

    token = TOKEN
    broken = False

    def read(self) -> tuple[str, ...]:
        if self.broken:
            raise TokenFileError("/secret/path: the token can't be read")
        return (self.token,)


@pytest.fixture
def secret() -> Secret:
    return Secret()


@pytest.fixture
def server(secret: Secret) -> Iterator[MetricsServer]:
    with MetricsServer(lambda: b"up 1\n", "127.0.0.1", 0, secret.read) as made:
        yield made


def asked(server: MetricsServer, path: str = "/metrics", token: str = TOKEN) -> tuple[int, str]:
    request = Request(server.url + path, headers={"Authorization": f"Bearer {token}", "Host": "10.1.2.3:7718"})
    try:
        with urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_the_token_is_asked_for_and_nothing_else_is_there(server: MetricsServer) -> None:
    assert asked(server) == (200, "up 1\n")
    assert asked(server, token="")[0] == asked(server, token="x" * 40)[0] == 401
    assert asked(server, "/v1/jobs")[0] == asked(server, "/")[0] == 404


def test_a_token_that_was_changed_counts_from_then_on(server: MetricsServer, secret: Secret) -> None:
    secret.token = "n" * 40
    assert (asked(server)[0], asked(server, token="n" * 40)[0]) == (401, 200)


def test_a_token_that_can_not_be_read_lets_nobody_in_and_tells_no_path(server: MetricsServer, secret: Secret) -> None:
    secret.broken = True
    status, told = asked(server)
    assert status == 503
    assert "/secret" not in told


def test_without_a_token_it_is_for_this_machine_alone() -> None:
    with pytest.raises(InsecureBindingError, match="--metrics-token FILE"):
        MetricsServer(lambda: b"", "0.0.0.0", 0, None)
    with MetricsServer(lambda: b"up 1\n", "127.0.0.1", 0, None) as server:
        assert asked(server, token="") == (200, "up 1\n")
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(AddressError, match="--metrics-listen"):
            MetricsServer(lambda: b"", "127.0.0.1", port, None)
