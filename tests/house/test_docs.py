"""The documentation keeps up with the code: commands, options, exit codes, reasons, kinds, dependencies, links."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click
import pytest
from click.testing import CliRunner

from hack.kubernetes.audited import Right, rights_of
from hack.kubernetes.shipped import NAMESPACE, base_objects
from reconciler.cli.exits import ExitCode
from reconciler.cli.main import COMMANDS, cli
from reconciler.documents.reader import read_yaml
from reconciler.documents.schemas import FOLDER_OF_KIND
from reconciler.documents.shape import kind_of, shape_problems
from reconciler.lifecycle.jobs.states import FOLLOWERS
from reconciler.node.local.environment import task_environments
from reconciler.protocols.backend import StartGang
from solver.model.cluster import NodeName
from solver.model.shape import Shape
from solver.model.workload import JobName, JobSpec, QueueName, TaskGroup, TaskPlacement
from solver.plan.reasons import AnyReason
from tests.house.tracked import ROOT, objections, tracked

WITHOUT_JSON = {
    "agent",
    "agents",
    "attach",
    "audit",
    "completion",
    "codeowners",
    "history",
    "init",
    "logs",
    "run",
    "snapshot",
    "store",
    "token",
}
"""They write files, show a task's own bytes, run until they are stopped, or have subcommands: none has a result."""

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def sections(text: str, level: str = "##") -> dict[str, str]:
    """Headings of a level with what stands below them."""
    parts = re.split(
        rf"^{level} +(.+)$", FENCE.sub(lambda fence: fence[0].replace("#", "\0"), text), flags=re.MULTILINE
    )
    return dict(zip(parts[1::2], (part.replace("\0", "#") for part in parts[2::2]), strict=True))


def command_of(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_its_section_with_an_example_and_every_option(name: str) -> None:
    section = sections(doc("cli.md"))[f"quorate {name}"]
    assert re.search(rf"^(\$ )?quorate {name}\b", section, re.MULTILINE), "no example"
    options = [option for option in command_of(name).params if isinstance(option, click.Option)]
    assert [option.opts[-1] for option in options if f"`{option.opts[-1]}" not in section] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_json_and_explains_its_options(name: str) -> None:
    options = [option for option in command_of(name).params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []
    outputs = [option.type for option in options if option.name == "output"]
    assert name in WITHOUT_JSON or (isinstance(outputs[0], click.Choice) and "json" in outputs[0].choices)


def test_every_exit_code_is_in_the_table() -> None:
    assert {f"| {code.value} |" for code in ExitCode} <= set(re.findall(r"^\| \d+ \|", doc("cli.md"), re.MULTILINE))


def test_every_reason_is_explained_and_no_other() -> None:
    codes = {reason.__struct_config__.tag for reason in get_args(AnyReason)}
    assert {f"`{code}`" for code in codes} == set(sections(doc("reasons.md"), "###"))
    assert len(set(codes)) <= 29, "more than a person can know: find the general one"


GLOSSARY = re.findall(r"^\| \*\*(.+?)\*\* \|.*\| (?:`(.+?)` )?\|$", doc("glossary.md"), re.MULTILINE)
"""Each term, and where it stands in YAML; "" where it stands in none."""


@pytest.mark.parametrize("path", [path for _, path in GLOSSARY if path])
def test_a_term_of_the_glossary_stands_where_it_is_said_to(path: str) -> None:
    assert CliRunner().invoke(cli, ["explain", path]).exit_code == ExitCode.OK


def test_the_glossary_has_each_term_once_and_every_kind_of_quota() -> None:
    terms = [term for names, _ in GLOSSARY for term in names.split(", ")]
    assert sorted(set(terms)) == sorted(terms)
    assert {"guaranteed", "max", "lendable", "weight", "borrowed", "shape", "geometry", "verdict"} <= set(terms)


def test_every_kind_of_document_is_described() -> None:
    assert set(FOLDER_OF_KIND) <= set(sections(doc("policy-reference.md")))


@pytest.mark.parametrize(
    "page",
    [
        "checkpoints.md",
        "following.md",
        "host-resources.md",
        "interactive.md",
        "jobs.md",
        "notifications.md",
        "pipelines.md",
        "policy-reference.md",
        "policy.md",
        "priority-classes.md",
        "queues.md",
        "reservations.md",
        "scheduling-policy.md",
        "services.md",
        "turns.md",
    ],
)
def test_the_documents_on_a_page_are_valid(page: str) -> None:
    examples = YAML.findall(doc(page))
    assert examples
    for example in examples:
        (document,) = read_yaml(example.encode(), page)
        kind = kind_of(document, page)
        assert isinstance(kind, str), kind
        assert list(shape_problems(document, kind, page)) == []


def test_every_variable_that_a_task_sees_is_described() -> None:
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape()),))
    order = StartGang(JobName("job"), 1, (TaskPlacement("worker", 0, NodeName("n1")),), spec)
    ((_, environment),) = task_environments(order, {}, 1, {})
    assert [name for name in environment if f"`{name}`" not in doc("task-environment.md")] == []


def test_every_state_of_a_job_is_described() -> None:
    assert [state for state in FOLLOWERS if f"`{state}`" not in doc("jobs.md")] == []


def test_the_table_of_states_is_the_one_that_is_enforced() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| \S.+ \| \S.+ \|$", doc("states.md"), re.MULTILINE)
    assert sorted(rows) == sorted((before, after) for before, followers in FOLLOWERS.items() for after in followers)


def test_every_dependency_has_its_reason() -> None:
    assert [name for name in _dependencies() if f"`{name}`" not in doc("dependencies.md")] == []


def _dependencies() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = [wish for wishes in project["project"]["optional-dependencies"].values() for wish in wishes]
    groups = [wish for wishes in project["dependency-groups"].values() for wish in wishes if isinstance(wish, str)]
    for wish in (*project["project"]["dependencies"], *extras, *groups):
        name = re.split(r"[\[<>=]", wish)[0]
        if name != project["project"]["name"]:
            yield name


def test_links_lead_somewhere() -> None:
    assert objections(tracked("*.md"), lambda path: list(_broken_links(path))) == {}


def _broken_links(path: Path) -> Iterator[str]:
    for target in LINK.findall(FENCE.sub("", path.read_text())):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        if not to.exists() or (anchor and anchor not in _anchors(to)):
            yield target


def _anchors(path: Path) -> set[str]:
    """As GitHub makes them: lower case, spaces as hyphens, other punctuation left out."""
    headings = HEADING.findall(FENCE.sub("", path.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_table_of_rights_is_that_of_the_shipped_roles() -> None:
    said = set()
    text = sections(doc("kubernetes-rights.md"))["Rights"]
    for part, namespace in zip(text.split("\n| What |")[1:], ("", "", NAMESPACE), strict=True):
        for what, verbs in re.findall(r"^\| (`.+?) \| ([a-z, ]+) \|", part, re.MULTILINE):
            names = re.findall(r" named `(.+?)`", what)
            for kind in re.findall(r"`(.+?)`", re.sub(r" named .*", "", what)):
                resource, _, group = kind.partition(".")
                said |= {Right(verb, group, resource, namespace, *names) for verb in verbs.split(", ")}
    assert said == rights_of(base_objects())
