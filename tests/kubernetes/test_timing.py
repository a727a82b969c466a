"""What an election is not begun with."""

from __future__ import annotations

import pytest

from reconciler.kubernetes.client.leader import HOLDER_MAX, Leadership, Timing
from reconciler.protocols.backend import Epoch


@pytest.mark.parametrize(
    "timing",
    [Timing(lease_s=7), Timing(renew_every_s=0), Timing(margin_s=-1), Timing(margin_s=13), Timing(renew_every_s=9)],
)
def test_a_lease_that_could_not_be_renewed_in_time_is_refused(timing: Timing) -> None:
    with pytest.raises(ValueError, match="renewals have to come more often"):
        timing.checked()


def test_the_longest_holder_fits_into_a_field_manager() -> None:
    assert len(Leadership("x" * HOLDER_MAX, Epoch(2**31 - 1), 0).field_manager) <= 128
