"""While one tenant floods a real control plane, another's jobs inside its guarantee start, and none of its requests is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.neighbours.tenants import measure

TIMES = 4


@pytest.mark.thorough
def test_a_tenant_beside_a_flood_is_served(tmp_path: Path) -> None:
    quiet, noise = measure(tmp_path, 1, TIMES)
    assert (len(quiet.starts), len(noise.starts)) == (TIMES, TIMES)
    assert quiet.refused + noise.refused == {}
    asked = {kind for kind, count in noise.counts.items() if count}
    assert {"submit", "huge", "list", "queues", "log"} <= asked, "it was a flood"
    assert not [kind for kind in asked if kind.endswith(("400", "404", "422"))], "of what there is"
