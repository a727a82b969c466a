"""A queue's page: what it held over time, stacked by the queues below it, which adds up to what the API says."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec.structs import replace as replaced

from reconciler.model.clock import VirtualClock
from reconciler.model.queue_line import QueueLine
from reconciler.protocols.placements import Steps
from reconciler.web.past import HeldOverTime
from reconciler.web.queue_colours import QueueColours
from reconciler.web.time_window import ShownWindow
from reconciler.web.use_picture import REST, UsePicture, use_picture
from solver.model.cluster import GpuType
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName, QueueName, TaskPlacement
from solver.policy.user_shares import UserShares
from tests.reconciler.api.conftest import H100, NOW, POLICY, Site, spec
from tests.reconciler.web.conftest import Console, serving_console
from tests.reconciler.web.tables import cells
from tests.reconciler.web.test_cluster_summary import task

HOUR = 3_600_000


@pytest.fixture
def used(site: Site, tmp_path: Path) -> Iterator[Console]:
    """`team` holds two GPUs since an hour, `other` held one for half of it."""
    for name, queue, *tasks in (("runs", "team", task("n1", 0, 1)), ("done", "other", task("n2", 0))):
        site.store.jobs.submit(JobName(name), spec(queue=queue), "ada", NOW, f"key-{name}")
        site.bind(name, *(each for each in tasks if isinstance(each, TaskPlacement)))
    site.store.ledger.release(site.epoch(), JobName("done"), 1, NOW.after(HOUR // 2))
    services = replace(site.services(), clock=VirtualClock(NOW.after(HOUR)))
    with serving_console(site, tmp_path, services=services) as running:
        yield running


@pytest.fixture
def shared(site: Site, tmp_path: Path) -> Iterator[Console]:
    """Users share `team`: ada holds two GPUs, bob waits for two; a weight has a slip."""
    team = next(queue for queue in site.policy.queues if queue.name == "team")
    shares = UserShares(True, {"ada": 2, "bobb": 3})
    queues = (replaced(one, users=shares) if one is team else one for one in site.policy.queues)
    site.policy = replaced(site.policy, queues=tuple(queues))
    for name, user in (("runs", "ada"), ("waits", "bob")):
        site.store.jobs.submit(JobName(name), spec(2, queue="team"), user, NOW, f"key-{name}")
    site.bind("runs", *(each for each in (task("n1", 0, 1),) if isinstance(each, TaskPlacement)))
    with serving_console(site, tmp_path) as running:
        yield running


WINDOW = f"from={NOW}&to={NOW.after(HOUR)}"


def test_the_queues_below_it_are_stacked_and_add_up(used: Console) -> None:
    with used.browser() as browser:
        text = browser.get(f"/queues/org?{WINDOW}").text
        api = browser.get(f"/v1/usage?queue=org&{WINDOW}").json()
    assert cells(text, "Table of what queues held") == [["other", "0.5", "1", "0.5"], ["team", "2", "2", "2.0"]]
    assert {row["queue"]: row["gpuSeconds"] for row in api["rows"]} == {"other": 1800, "team": 7200}
    steps = cells(text, "Table of steps")
    assert [steps[0], steps[-1]] == [[str(NOW), "1", "2", "3"], [str(NOW.after(HOUR - 60_000)), "0", "2", "2"]]
    assert len(steps) == 60
    assert len(re.findall('class="u-layer', text)) == 2
    assert 'href="/queues/team">team</a>' in text


def test_users_that_share_it_stand_there_as_the_api_has_them(shared: Console) -> None:
    with shared.browser() as browser:
        text, other = (browser.get(f"/queues/{name}").text for name in ("team", "other"))
        of_team = browser.get("/v1/queues?users=true").json()["items"][-1]["users"]
    figures = [[one[key] for key in ("user", "gpuType", "weight", "fairShare", "held", "waiting")] for one in of_team]
    assert figures == [["ada", "H100", 2, 2, 2, 0], ["bob", "H100", 1, 2, 0, 2]]
    assert cells(text, "Table of users") == [[*map(str, row), "0.0"] for row in figures]
    assert "A weight names user bobb, of whom no job is known; did you mean bob?" in text
    assert "Users that share it" not in other


def test_guarantee_and_max_of_the_type_are_lines(used: Console) -> None:
    with used.browser() as browser:
        text = browser.get(f"/queues/team?{WINDOW}&type=H100").text
    # Six at most, and a twentieth above that in whole GPUs: seven high.
    assert re.findall(r'<line class="u-(\w+)" x1="0" x2="100%" y1="([\d.]+)%"', text) == [
        ("guaranteed", "42.86"),
        ("max", "14.29"),
    ]
    assert "guaranteed 4<" in text
    assert "max 6<" in text


def test_what_is_not_there_is_told(used: Console) -> None:
    with used.browser() as browser:
        assert browser.get("/queues/gone").status_code == 404
        assert browser.get("/queues/team?from=soon").status_code == 422
        assert "No job held" in browser.get("/queues/team?from=2020-01-01&to=2020-01-02").text
        assert "No job held strange GPUs" in browser.get("/queues/team?type=strange").text
        assert "No job held" in browser.get("/queues/team?from=in+1h&to=in+2h").text
        assert browser.get("/queues/team/hold").status_code == 200


def test_the_tree_leads_to_it(used: Console) -> None:
    with used.browser() as browser:
        assert '<a href="/queues/team?type=H100" aria-label="team H100 over time">' in browser.get("/queues").text


def picture(held: Mapping[str, tuple[int, ...]], line: QueueLine | None = None) -> UsePicture:
    steps = Steps(Instant(0), Duration(HOUR), 2)
    shown = ShownWindow(Instant(0), Instant(2 * HOUR), Instant(3 * HOUR // 2), "", "")
    order = [QueueName(name) for name in held]
    values = {(QueueName(name), H100): tuple(map(MilliGpu, each)) for name, each in held.items()}
    used = HeldOverTime(steps, shown.past.end, values)
    return use_picture(H100, used, order, line, shown, QueueColours.of(POLICY))


def test_layers_lie_upon_each_other_and_end_with_what_is_over() -> None:
    made = picture({"team": (2_000, 0), "other": (1_000, 4_000)})
    assert (made.top, made.width, made.steps) == (5_000, 75, 1.5)
    team, other = made.layers
    assert team.path == "M0 100L0 60L1 60L1 100L1.5 100L1.5 100L1 100L1 100L0 100Z"
    assert other.path == "M0 60L0 40L1 40L1 20L1.5 20L1.5 100L1 100L1 60L0 60Z"
    # An hour and a half an hour.
    assert [(layer.average, layer.most, layer.gpu_hours) for layer in made.layers] == [
        (1_333, 2_000, 2),
        (2_000, 4_000, 3),
    ]
    assert made.totals == (3_000, 4_000)
    assert [layer.colour for layer in made.layers] == ["c1", "c0"]


def test_of_many_queues_the_biggest_are_told_apart_and_nothing_is_lost() -> None:
    held = {f"q{number}": (1_000 * number, 0) for number in range(12)}
    made = picture(held)
    assert [layer.name for layer in made.layers] == [*(f"q{number}" for number in range(4, 12)), REST]
    assert len({layer.colour for layer in made.layers}) == 9
    assert made.totals == (66_000, 0)


def test_a_line_that_is_not_stated_is_not_drawn() -> None:
    none = MilliGpu(0)
    assert picture({"team": (1_000, 0)}, QueueLine(GpuType("H100"), none, None, none, none, none, none)).lines == ()
