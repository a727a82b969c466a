"""The journal of a gang: what is written is read again, and what others write does no harm."""

from __future__ import annotations

import base64
import zlib
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.kubernetes.binder import journal as journals
from reconciler.kubernetes.binder.journal import (
    GangBinding,
    JournalTooLongError,
    JournalUnreadableError,
    PodBinding,
    StartJournal,
    hold_annotations,
    journal_of,
    read,
    written,
)
from reconciler.kubernetes.objects import names
from reconciler.kubernetes.objects.pods import task_of
from reconciler.kubernetes.objects.wire import KubeContainer, Meta, Pod, PodSpec
from solver.model.cluster import DeviceId, NodeName
from solver.model.quantities import Duration, Instant, MilliGpu
from solver.model.workload import JobName
from tests.drawn import worlds

WORDS = st.text("abc-.0189", min_size=1, max_size=20)
DEVICES = st.lists(st.one_of(WORDS, WORDS.map("/".__add__)), max_size=3)


@st.composite
def bindings(draw: st.DrawFn) -> PodBinding:
    node = draw(WORDS)
    devices = tuple(DeviceId(f"{node}{device}" if draw(st.booleans()) else device) for device in draw(DEVICES))
    share = draw(st.none() | st.integers(1, 999).map(MilliGpu))
    return PodBinding("ns", draw(WORDS), draw(WORDS), "17", NodeName(node), devices, share, draw(st.none() | WORDS))


@worlds(100)
@given(
    st.lists(bindings(), min_size=1, max_size=40), st.integers(1, 9), st.none() | st.integers(0, 10**12).map(Duration)
)
def test_what_is_written_is_read_again_whole(pods: list[PodBinding], attempt: int, limit: Duration | None) -> None:
    gang = GangBinding(JobName("ns.gang.a"), attempt, tuple(pods), limit)
    journal = journal_of(gang, Instant(1_700_000_000_123))
    assert read(written(journal)) == journal
    assert [pod._replace(resource_version="17") for pod in read(written(journal)).pods] == pods


def gang_of(count: int) -> StartJournal:
    """As StatefulSets and uids are: names alike, uids not."""
    chance = Random(count)
    pods = tuple(
        PodBinding(
            "research", f"llama-pretrain-{number}", str(UUID(int=chance.getrandbits(128))), "1",
            NodeName(f"gpu-node-{number:05}"), tuple(DeviceId(f"gpu-node-{number:05}/{gpu}") for gpu in range(8)),
        )
        for number in range(count)
    )  # fmt: skip
    return journal_of(GangBinding(JobName("research.gang.llama"), 1, pods), Instant(0))


def test_a_small_one_can_be_read_by_people_and_a_large_one_fits() -> None:
    assert '"llama-pretrain-1"' in written(gang_of(2))
    assert len(written(gang_of(512))) < 32 * 1024
    assert read(written(gang_of(3_000))) == gang_of(3_000)


def test_one_that_no_pod_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "WRITTEN_MAX", 4_000)
    with pytest.raises(JournalTooLongError, match=r"the plan of 512 pods takes .* Split the gang"):
        written(gang_of(512))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"job":"a","attempt":1,"at":0,"namespace":"n","pods":[]}',
        '{"job":"a","attempt":1,"at":0,"namespace":"n","pods":[["p","u"]]}',
        "z:no base64",
        "z:" + base64.b64encode(b"no zlib").decode(),
        "z:" + base64.b64encode(zlib.compress(b" " * 100_000_000)).decode(),
    ],
)
def test_what_is_no_journal_is_said_and_takes_no_memory(text: str) -> None:
    with pytest.raises(JournalUnreadableError, match=names.GANG_PLAN):
        read(text)


def test_what_a_binding_says_of_devices_is_read_by_the_mapping_of_pods() -> None:
    binding = PodBinding("ns", "p", "u", "1", NodeName("n1"), (DeviceId("n1/0"),), MilliGpu(250), "mps")
    meta = Meta("p", "ns", annotations=hold_annotations(binding, GangBinding(JobName("j"), 3, (binding,))))
    task = task_of(Pod(meta, PodSpec((KubeContainer("main"),), node_name="n1")))
    assert (task.devices, task.share, task.sharing, task.attempt) == (("n1/0",), 250, "mps", 3)
