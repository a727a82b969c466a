"""What the page for sites of other schedulers says of Quorate: all of it together is a valid repository, with valid jobs."""

from __future__ import annotations

import re
from pathlib import Path

from reconciler.documents.job import read_job
from tests.reconciler.documents.repository import POOL, reading

PAGE = Path(__file__).parents[3] / "docs" / "kueue-and-kai.md"
BLOCK = re.compile(r"^```yaml\n# Quorate\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_what_is_written_here_is_valid() -> None:
    written = [f"apiVersion: quorate.dev/v1\n{block}" for block in BLOCK.findall(PAGE.read_text())]
    jobs = [text for text in written if "kind: Job\n" in text]
    policy = {f"policies/{number}.yaml": text for number, text in enumerate(written) if text not in jobs}
    assert (len(policy), len(jobs)) == (6, 2)
    assert reading({**policy, "cluster-state/big.yaml": POOL}).problems == ()
    assert [read_job(text.encode(), "job.yaml").name for text in jobs] == ["reads", "serves"]
