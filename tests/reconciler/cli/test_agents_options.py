"""Options of `quorate run` for machines with agents, which mean nothing alone and exclude others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from reconciler.backends.baremetal.merge import LOST_AFTER
from reconciler.cli.agents_options import agents_settings, refuse_beside_agents
from reconciler.cli.params import Address
from solver.model.quantities import Duration

NOTHING: dict[str, Any] = {"agents_listen": None, "agents_authority": None, "node_lost_after": None}


def test_without_an_address_there_are_no_agents() -> None:
    given = NOTHING | {"other": 1}
    assert agents_settings(given) is None
    assert given == {"other": 1}


def test_nodes_are_given_up_after_the_usual_time_unless_another_is_stated() -> None:
    found = agents_settings(NOTHING | {"agents_listen": Address("127.0.0.1", 7420)})
    assert found is not None
    assert (found.port, found.node_lost_after, found.authority) == (7420, LOST_AFTER, None)


@pytest.mark.parametrize("given", [{"agents_authority": Path("file")}, {"node_lost_after": Duration(1)}])
def test_what_would_be_ignored_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError, match="are for --agents-listen"):
        agents_settings(NOTHING | given)


def test_options_for_tasks_elsewhere_are_refused() -> None:
    refuse_beside_agents({"--kubernetes": None, "--tasks": None})
    with pytest.raises(click.UsageError, match="--tasks is not for those"):
        refuse_beside_agents({"--kubernetes": None, "--tasks": Path("tasks")})
