"""Options of `quorate run` that mean nothing together are refused, with what to leave out."""

from __future__ import annotations

import pytest

from reconciler.cli.exits import ExitCode
from tests.reconciler.cli.conftest import Quorate

REPOSITORY = ("run", "--policies-repo", "/no/such/repository")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--keep-logs", "30d", "--kubernetes"), "--keep-logs is for tasks of this machine"),
        (("--keep-logs", "30d", "--agents-listen", "127.0.0.1:0"), "`quorate agent` has"),
        (("--slurm",), "say --observe too"),
        (("--slurm", "--observe", "--kubernetes"), "two clusters"),
        (("--slurm-every", "10s"), "is for --slurm"),
        (("--observe",), "is for --kubernetes or --slurm"),
        (("--slurm", "--observe", "--gpus", "nvml"), "beside Slurm it runs none"),
        (("--keep-logs", "0s"), "it must be longer than 0s"),
        (("--gpus", "nvml", "--kubernetes"), "--gpus nvml is for the GPUs of this machine"),
        (("--external-url", "http://quorate.example"), "http://quorate.example: the cookie needs HTTPS"),
        (("--external-url", "quorate.example"), "expected https://HOST"),
        (("--external-url", "https://u@quorate.example"), "expected https://HOST"),
        (("--external-url", "https://quorate.example/console"), "the console needs a host of its own"),
        (("--external-url", "https://quorate.example:port"), "--external-url https://quorate.example:port:"),
        (("--metrics-token", "file"), "--metrics-token is asked for by --metrics-listen"),
        (("--dcgm-prometheus", "http://p.example:9090"), "are for --kubernetes"),
        (
            ("--kubernetes", "--dcgm-prometheus", "http://p.example", "--dcgm-exporters", "http://e.example"),
            "Leave one of them out",
        ),
        (("--kubernetes", "--dcgm-prometheus-token", "file"), "--dcgm-prometheus-token is for --dcgm-prometheus"),
        (("--kubernetes", "--dcgm-prometheus", "p.example:9090"), "expected http://HOST:9090 or https://HOST"),
        (("--kubernetes", "--dcgm-exporters", "https://e.example"), "expected http://HOST:9400/metrics"),
        (("--kubernetes", "--dcgm-exporters", "http://e.example", "--dcgm-interval", "2m"), "between 1s and 1m"),
        (("--client-secret", "https://id.example"), "expected ISSUER=FILE"),
        (
            ("--client-secret", "https://i.example/=a", "--client-secret", "https://i.example/=b"),
            "once for each issuer",
        ),
    ],
)
def test_what_is_refused(quorate: Quorate, options: tuple[str, ...], message: str) -> None:
    ran = quorate(*REPOSITORY, *options)
    assert ran.exit_code == ExitCode.USAGE
    assert message in ran.err
