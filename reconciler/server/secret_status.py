"""Whether the secrets that lie in files can be used: said as a condition and as figures, asked anew each time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from reconciler.access.secret_file import SECRETS, SecretRegister
from reconciler.api.payloads import Condition

UNUSABLE: Final = "SecretUnusable"


class SecretStatus(Collector):
    """Of the secrets that this process has read."""

    def __init__(self, secrets: SecretRegister = SECRETS) -> None:
        self._secrets = secrets

    def conditions(self) -> Iterator[Condition]:
        """One while a file can't be used. Each is looked at, whether anything needs it now or not."""
        told = []
        for place, found in self._secrets.looked_at().items():
            if found is not None:
                named = found.problem if place in found.problem else f"{place}: {found.problem}"
                counts = "What was read of it before counts" if found.is_kept else "Nothing counts of it"
                told.append(f"{named.rstrip('.')}. {counts} until a good file is in its place")
        if told:
            yield Condition(UNUSABLE, status=True, reason="FileUnusable", message="; ".join(told))

    def collect(self) -> Iterator[Metric]:
        """Whether that is so, of each file."""
        unusable = GaugeMetricFamily(
            "quorate_secret_unusable", "1 while a file with a secret can't be used as it is.", labels=["file"]
        )
        for place, found in self._secrets.looked_at().items():
            unusable.add_metric([place], found is not None)
        yield unusable
