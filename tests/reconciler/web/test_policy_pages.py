"""The policy in force with its documents and lines, what earlier revisions did, and a held one that a user accepts."""

from __future__ import annotations

import html
import re
from http import HTTPStatus
from pathlib import Path

import httpx2
import msgspec
import pytest

from reconciler.access.policy import AccessPolicy, RoleBinding
from reconciler.gitops.source.mirror import GitMirror
from reconciler.model.git_record import REVISION_APPLIED, REVISION_REFUSED
from reconciler.model.git_status import Drift, PolicyCondition, PolicyStatus
from reconciler.model.problem import START, problem_at
from reconciler.protocols.history import Event
from reconciler.protocols.rounds import NarrowRecord
from reconciler.web.policy_history import effect_of
from reconciler.web.policy_pages import acceptors, diff_lines
from solver.model.quantities import Duration
from solver.model.workload import JobName
from solver.policy.guardrails import Guardrails
from solver.policy.policy import SchedulingPolicy, policy_of
from tests.reconciler.analysis.reports.reviews import moved_quota
from tests.reconciler.api.conftest import NOW, POLICY, REVISION, TOKEN, spec
from tests.reconciler.gitops.source.origin import QUEUE, Origin
from tests.reconciler.web.conftest import Console

FILE, ACCESS = "policies/team.yaml", "policies/access.yaml"
EVIL = "<img src=x onerror=alert(1)>"


class Branch:
    """A branch that is followed: what is committed is fetched, and put in force by a word."""

    def __init__(self, console: Console, folder: Path) -> None:
        self.console, self.origin = console, Origin(folder / "origin")
        self.mirror = GitMirror(console.site.secrets / "mirror.git", str(self.origin.folder))

    def commit(self, files: dict[str, str]) -> str:
        self.origin.commit(files)
        return self.mirror.fetch("main")

    def put_in_force(self, commit: str, after_ms: int = 0) -> None:
        site = self.console.site
        site.revision = commit
        ready = PolicyCondition("Ready", status=True, reason="Applied", message="it is")
        site.told = PolicyStatus((ready,), commit, commit)
        cause = f"{commit[:12]} is in force"
        site.store.history.record_event(Event(NOW.after(after_ms), REVISION_APPLIED, commit, cause, "test"))

    def hold(self, commit: str, reason: str = "PlanDrift", *, acceptable: bool = True) -> None:
        site, cause = self.console.site, f"{reason}: too much"
        site.told = PolicyStatus(
            (PolicyCondition("Stalled", status=True, reason=reason, message=f"it would {EVIL}"),),
            site.revision,
            commit,
            (problem_at(FILE, START._replace(line=4), "too-much", "this is much", "Ask for less."),),
            acceptable,
            (Drift("evicted jobs", "2", "7", beyond=True),),
        )
        site.store.history.record_event(Event(NOW, REVISION_REFUSED, commit, cause, "test"))


@pytest.fixture
def branch(console: Console, tmp_path: Path) -> Branch:
    return Branch(console, tmp_path)


def told(browser: httpx2.Client, path: str) -> str:
    """A page as text."""
    answer = browser.get(path)
    assert answer.status_code == HTTPStatus.OK, answer.text
    return html.unescape(re.sub(r"</?(bdi|code|time|small)>", "", answer.text))


def test_what_is_in_force_since_when_and_what_it_says_line_by_line(console: Console, branch: Branch) -> None:
    revision = branch.commit({FILE: QUEUE % 7, "policies/sub folder/more#.yaml": "# more\n", "README.md": "no policy"})
    branch.put_in_force(revision)
    with console.browser() as browser:
        text = told(browser, "/policy")
        assert f"since {NOW}: change, by Ada on " in text
        assert re.findall(r'href="(/policy/documents/[^"]+)"', text) == [
            "/policy/documents/policies/sub%20folder/more%23.yaml", f"/policy/documents/{FILE}"
        ]  # fmt: skip
        assert "# more" in told(browser, "/policy/documents/policies/sub%20folder/more%23.yaml")
        lines = told(browser, f"/policy/documents/{FILE}")
    assert re.findall(r'id="L(\d+)"><a [^>]*></a>([^<]*)<', lines) == [
        (str(number), line) for number, line in enumerate((QUEUE % 7).splitlines(keepends=True), 1)
    ]
    assert "which is in force" in lines


def test_documents_are_of_the_commit_and_never_of_a_folder(console: Console, branch: Branch) -> None:
    first = branch.commit({FILE: QUEUE % 1})
    branch.put_in_force(first)
    second = branch.commit({FILE: QUEUE % 2})
    branch.origin.write({FILE: QUEUE % 3})
    with console.browser() as browser:
        assert "weight: 1" in told(browser, f"/policy/documents/{FILE}")
        # It was never to be in force: that it lies in the mirror is not enough.
        assert browser.get(f"/policy/documents/{FILE}?revision={second}").status_code == HTTPStatus.NOT_FOUND
        assert browser.get(f"/policy/revisions/{second}").status_code == HTTPStatus.NOT_FOUND
        branch.hold(second)
        assert "weight: 2" in (held := told(browser, f"/policy/documents/{FILE}?revision={second}"))
        assert "which is not in force" in held
        for path in ("../../../etc/passwd", "README.md", "policies", f"{FILE}/", "%2e%2e/HEAD"):
            assert browser.get(f"/policy/documents/{path}").status_code == HTTPStatus.NOT_FOUND
        for revision in ("HEAD", "main", "--all", "refs/quorate/applied"):
            refused = browser.get(f"/policy/documents/{FILE}", params={"revision": revision})
            assert refused.status_code == 422


def test_names_and_documents_of_others_are_text(console: Console, branch: Branch) -> None:
    branch.origin.git("config", "user.name", EVIL)
    branch.origin.write({f"policies/{EVIL.replace('/', '')}.yaml": f"# {EVIL}\u202e\n"})
    branch.origin.git("add", "--all")
    branch.origin.git("commit", "--quiet", f"--message={EVIL}\u202e")
    revision = branch.mirror.fetch("main")
    branch.put_in_force(revision)
    branch.hold(revision)
    with console.browser() as browser:
        pages = [browser.get(f"/policy{path}").text for path in ("", f"/revisions/{revision}")]
        (link,) = set(re.findall(r'href="(/policy/documents/[^"?#]+)"', pages[0]))
        pages.append(browser.get(link).text)
    assert all("<img" not in page and "\u202e" not in page for page in pages)
    assert all("&lt;img" in page for page in pages)


def test_revisions_one_after_another_with_what_each_did(console: Console, branch: Branch) -> None:
    first = branch.commit({FILE: QUEUE % 1})
    branch.put_in_force(first)
    console.site.store.jobs.submit(JobName("never"), spec(5), "ada", console.clock.now(), "key")
    console.site.record_round()
    skipped = branch.commit({FILE: QUEUE % 2})
    second = branch.commit({FILE: QUEUE % 3, "policies/new.yaml": "# new\n"})
    branch.put_in_force(second)
    console.site.store.jobs.submit(JobName("starts"), spec(1), "ada", console.clock.now(), "other")
    console.site.record_round()
    with console.browser() as browser:
        text = told(browser, "/policy")
        assert re.findall(r'<th scope="row"><a href="/policy/revisions/(\w+)"', text) == [second, first]
        rows = re.findall(r"<td>([^<]*)</td><td>([^<]*)</td><td>([^<]*)</td>", text)
        assert rows == [("0 → 1", "0 → 0", "1 → 1"), ("0", "0", "1")]
        detail = told(browser, f"/policy/revisions/{second}")
        assert "start 0 → 1, wait 0 → 0, can never run 1 → 1" in detail
        assert "No job gave anything up in that round." in detail
        assert [line for line in re.findall(r'<span class="d-(?:in|out)">([^<]*)<', detail) if "weight" in line] == [
            "-spec: {weight: 1}", "+spec: {weight: 3}"
        ]  # fmt: skip
        assert f'href="/policy/documents/policies/new.yaml?revision={second}">policies/new.yaml</a>, added' in detail
        # The one before is that which was in force before, not the commit before.
        assert f'before it <a href="/policy/revisions/{first}">' in detail
        assert browser.get(f"/policy/revisions/{skipped}").status_code == HTTPStatus.NOT_FOUND
        for path in ("/rounds", "/rounds/2", "/queues"):
            assert f'href="/policy/revisions/{second}"' in browser.get(path).text


def test_long_histories_page_by_page(console: Console, branch: Branch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.web.policy_history.PAGE", 2)
    revisions = [branch.commit({FILE: QUEUE % weight}) for weight in range(1, 6)]
    for revision in revisions:
        branch.put_in_force(revision)
    seen, path = list[list[str]](), "/policy"
    with console.browser() as browser:
        while path:
            text = browser.get(path).text
            seen.append(re.findall(r'<th scope="row"><a href="/policy/revisions/(\w+)"', text))
            found = re.search(r'<a href="([^"]+)" rel="next">', text)
            path = html.unescape(found[1]) if found else ""
    assert seen == [revisions[:2:-1], revisions[2:0:-1], revisions[:1]]


def test_what_rounds_no_longer_say_is_told_as_such(console: Console, branch: Branch) -> None:
    branch.put_in_force(branch.commit({FILE: QUEUE % 1}))
    with console.browser() as browser:
        assert "<td>not on record</td><td>not on record</td>" in browser.get("/policy").text
        assert "No round right after it is on record." in browser.get(f"/policy/revisions/{console.site.revision}").text


def test_where_git_has_no_such_commit_the_rest_is_told(console: Console) -> None:
    console.site.store.history.record_event(Event(NOW, REVISION_APPLIED, REVISION, "in force", "test"))
    with console.browser() as browser:
        text = told(browser, "/policy")
        assert "They can't be shown: nothing has been fetched yet." in text
        assert "Git has it no more" in text
        assert browser.get(f"/policy/documents/{FILE}").status_code == HTTPStatus.NOT_FOUND


def test_rounds_of_single_jobs_do_not_count_as_what_a_revision_did(console: Console) -> None:
    """Numbers: 1 and 2 under a, 3 alone under a, 4 alone under b, 5 and 6 under b."""
    history, site = console.site.store.history, console.site
    for revision, alone in (("a", False), ("a", False), ("a", True), ("b", True), ("b", False), ("b", False)):
        site.revision = revision * 40
        if alone:
            record = NarrowRecord(0, NOW, site.revision, 2, taken=(), waited=(), came=(), steps=(), phase_ms={})
            history.record_narrow(site.epoch(), record)
        else:
            site.record_round()
    found = effect_of(history, "b" * 40, NOW)
    assert (found.before and found.before.number, found.after and found.after.number) == (2, 5)
    assert effect_of(history, "b" * 40, NOW.after(1_000)) == found
    assert effect_of(history, "c" * 40, NOW).after is None


def test_a_held_revision_says_why_and_is_accepted_with_a_reason(console: Console, branch: Branch) -> None:
    branch.put_in_force(branch.commit({FILE: QUEUE % 1}))
    held = branch.commit({FILE: QUEUE % 2})
    branch.hold(held)
    site = console.site
    site.access = AccessPolicy(
        roles=(RoleBinding("viewer", ("user:ada",)), RoleBinding("admin", ("user:root", "group:ops")))
    )
    origin = {"origin": console.url}
    with console.stranger() as client:
        # With a cookie the guard asks for the Origin already; a form has to name it whoever sends it.
        bearer = {"authorization": f"Bearer {TOKEN}"}
        refused = client.post("/policy/approve", data={"revision": held, "reason": "why"}, headers=bearer)
        assert (refused.status_code, "A form has to name its Origin." in refused.text) == (HTTPStatus.FORBIDDEN, True)
    with console.browser() as browser:
        text = told(browser, "/policy")
        assert "Held: PlanDrift" in text
        assert (
            f'href="/policy/documents/{FILE}?revision={held}#L4">{FILE}:4</a>, error: this is much. Ask for less.'
            in text
        )
        assert '<td class="wide">2</td><td class="wide">7</td>' in text
        assert "by: user:root, group:ops, the holder of the server's own token." in text
        form = {"revision": held, "reason": " it is\nmeant "}
        assert browser.post("/policy/approve", data=form).status_code == HTTPStatus.FORBIDDEN
        assert browser.post("/policy/approve", data={**form, "reason": " "}, headers=origin).status_code == 422
        assert browser.post("/policy/approve", data={**form, "revision": "c" * 40}, headers=origin).status_code == 409
        assert (site.store.following.approvals(), site.looks) == ((), 0)
        done = browser.post("/policy/approve", data=form, headers=origin)
        assert (done.status_code, done.headers["location"]) == (HTTPStatus.SEE_OTHER, "/policy")
        assert "alice has accepted it: it is meant." in told(browser, "/policy")
    (approval,) = site.store.following.approvals()
    assert (approval.commit, approval.reason, approval.author, approval.why) == (
        held,
        "PlanDrift",
        "alice",
        "it is meant",
    )
    assert [event.kind for event in site.store.history.events(held)] == ["policy-refused", "policy-approved"]
    assert site.looks == 1


def test_who_may_not_accept_is_offered_nothing_and_refused(console: Console, branch: Branch) -> None:
    branch.put_in_force(branch.commit({FILE: QUEUE % 1}))
    held = branch.commit({FILE: QUEUE % 2})
    branch.hold(held)
    console.site.access = AccessPolicy(roles=(RoleBinding("operator", ("user:ada",)),))
    with console.browser(console.adas) as browser:
        assert '<form class="fields"' not in browser.get("/policy").text
        form = {"revision": held, "reason": "why"}
        refused = browser.post("/policy/approve", data=form, headers={"origin": console.url})
    assert (refused.status_code, console.site.store.following.approvals()) == (HTTPStatus.FORBIDDEN, ())
    branch.hold(held, "SignatureRefused", acceptable=False)
    with console.browser() as browser:
        text = browser.get("/policy").text
    assert "No person can accept it" in text
    assert '<form class="fields"' not in text


def test_what_the_api_does_not_show_of_the_policy_is_for_admins(console: Console, branch: Branch) -> None:
    first = branch.commit({ACCESS: "kind: AccessPolicy # one\n"})
    branch.put_in_force(first)
    revision = branch.commit({ACCESS: "kind: AccessPolicy # two\n"})
    branch.put_in_force(revision)
    console.site.access = AccessPolicy(roles=(RoleBinding("operator", ("user:ada",)),))
    with console.browser(console.adas) as browser:
        assert "for admins of the policy" in browser.get("/policy").text
        assert browser.get(f"/policy/documents/{ACCESS}").status_code == HTTPStatus.FORBIDDEN
        assert "# two" not in browser.get(f"/policy/revisions/{revision}").text
    with console.browser() as browser:
        assert "# two" in browser.get(f"/policy/documents/{ACCESS}").text
        assert "+kind: AccessPolicy # two" in browser.get(f"/policy/revisions/{revision}").text


def test_the_servers_own_plan_of_what_is_held(console: Console, branch: Branch) -> None:
    branch.put_in_force(branch.commit({FILE: QUEUE % 1}))
    held = branch.commit({FILE: QUEUE % 2})
    with console.browser() as browser:
        assert browser.get("/policy/plan").status_code == HTTPStatus.NOT_FOUND
        found = moved_quota()
        console.site.planned = msgspec.structs.replace(found, head=msgspec.structs.replace(found.head, commit=held))
        branch.hold(held)
        assert 'href="/policy/plan"' in browser.get("/policy").text
        assert "Evicted by the change (1)" in told(browser, "/policy/plan")


def test_guardrails_in_words_with_their_place(console: Console) -> None:
    rails = Guardrails(max_evicted_jobs=3, four_eyes=("policies/*",), min_convergence=Duration(60_000))
    settings = SchedulingPolicy(guardrails=rails, origin="policies/s.yaml:9")
    console.site.policy = policy_of(POLICY.queues, scheduling=settings)
    with console.browser() as browser:
        text = told(browser, "/policy")
    assert "A change evicts at most 3 jobs" in text
    assert "No user changes these alone: policies/*" in text
    assert 'href="/policy/documents/policies/s.yaml#L9"' in text


def test_acceptors_are_admins_of_all_queues() -> None:
    access = AccessPolicy(roles=(RoleBinding("admin", ("user:root",)), RoleBinding("admin", ("user:ml",), ())))
    assert acceptors(access) == ("user:root", "the holder of the server's own token")
    assert acceptors(None) == ("the holder of the server's own token",)


def test_a_diff_has_a_few_lines_around_what_differs_and_none_where_it_is_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = "\n".join("abcdefgh")
    assert diff_lines(before, before.replace("e", "E")) == ("@@ -3,5 +3,5 @@", " c", " d", "-e", "+E", " f", " g")
    monkeypatch.setattr("reconciler.web.policy_pages.DIFF_LINES_MAX", 7)
    assert diff_lines(before, "") == ()
