"""How many connections follow from the limit of open files."""

from __future__ import annotations

import resource

import pytest

from reconciler.connections.limits import (
    ConnectionLimits,
    ConnectionLimitsError,
    agents_limits,
    api_limits,
    descriptors_for_connections,
)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (request.param, resource.RLIM_INFINITY))


@pytest.mark.parametrize(
    ("files", "left"),
    [(64, 32), (256, 128), (1024, 768), (65536, 63488), (resource.RLIM_INFINITY, 2**20 - 2048)],
    indirect=["files"],
)
@pytest.mark.usefixtures("files")
def test_a_quarter_is_kept_back_within_limits(left: int) -> None:
    assert descriptors_for_connections() == left


@pytest.mark.parametrize("files", [1024], indirect=True)
@pytest.mark.usefixtures("files")
def test_agents_and_the_api_share_what_is_left() -> None:
    assert api_limits() == ConnectionLimits(768, 384)
    assert (agents_limits(), api_limits(beside_agents=True)) == (ConnectionLimits(576, 288), ConnectionLimits(192, 96))


@pytest.mark.parametrize("files", [20_000], indirect=True)
@pytest.mark.usefixtures("files")
def test_12500_agents_need_20000_descriptors() -> None:
    """As many as docs/performance.md has: the API and what is kept back take a part that does not grow with the limit."""
    assert (agents_limits().connections_max, api_limits(beside_agents=True).connections_max) == (16_928, 1024)


@pytest.mark.parametrize("files", [resource.RLIM_INFINITY], indirect=True)
@pytest.mark.usefixtures("files")
def test_memory_bounds_them_too() -> None:
    assert api_limits() == ConnectionLimits(1024, 512)
    assert api_limits(connections_max=20_000).connections_max == 20_000


@pytest.mark.parametrize("files", [1024], indirect=True)
@pytest.mark.usefixtures("files")
def test_what_is_asked_for_has_to_be_there() -> None:
    assert api_limits(768, 1000) == ConnectionLimits(768, 768)
    assert api_limits(1) == ConnectionLimits(1, 1)
    with pytest.raises(ConnectionLimitsError, match=r"--connections-max 769: .*, 768 are left .*LimitNOFILE="):
        api_limits(769)
