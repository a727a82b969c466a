"""Quantities, and what a pod asks for in all."""

from __future__ import annotations

from fractions import Fraction

import pytest

from reconciler.kubernetes.objects.amounts import amount, down, up
from reconciler.kubernetes.objects.requests import requests_of
from reconciler.kubernetes.objects.wire import PodSpec, read
from tests.reconciler.kubernetes.samples import from_yaml


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("8", 8),
        ("250m", Fraction(1, 4)),
        ("0.5", Fraction(1, 2)),
        ("1.5Gi", 3 * 2**29),
        ("100M", 10**8),
        ("2e3", 2000),
        ("1E", 10**18),
        ("1E1", 10),
        ("12u", Fraction(12, 10**6)),
        (".5", Fraction(1, 2)),
        (3, 3),
    ],
)
def test_quantities_are_read_exactly(written: str | int, number: Fraction | int) -> None:
    assert amount(written) == number


@pytest.mark.parametrize("written", ["", "1 Gi", "Gi", "1e999999999", "0x10", "1mi", "--1", "nan"])
def test_what_is_no_quantity_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="expected a quantity"):
        amount(written)


def test_requests_round_up_and_capacities_down() -> None:
    assert up(amount("100.5m"), 1000) == 101
    assert down(amount("100.5m"), 1000) == 100
    assert up(amount("400m")) == 1


def spec(text: str) -> PodSpec:
    (sent,) = from_yaml(text)
    return read(sent, PodSpec)


def test_containers_add_up_and_init_containers_come_one_after_the_other() -> None:
    asked = requests_of(
        spec(
            """
            initContainers:
              - {name: fetch, resources: {requests: {cpu: "6", memory: 1Gi}}}
              - {name: unpack, resources: {requests: {cpu: "2", memory: 9Gi}}}
            containers:
              - {name: train, resources: {requests: {cpu: "3", memory: 4Gi, nvidia.com/gpu: "2"}}}
              - {name: logs, resources: {requests: {cpu: 500m}}}
            """
        )
    )
    assert asked == {"cpu": 6, "memory": 9 * 2**30, "nvidia.com/gpu": 2, "pods": 1}


def test_a_sidecar_runs_beside_what_comes_after_it() -> None:
    """By KEP-753: max(sidecar + later init, sidecar + containers); an init container before it runs without it."""
    asked = requests_of(
        spec(
            """
            initContainers:
              - {name: early, resources: {requests: {cpu: "7"}}}
              - {name: proxy, restartPolicy: Always, resources: {requests: {cpu: "2"}}}
              - {name: late, resources: {requests: {cpu: "6"}}}
            containers:
              - {name: train, resources: {requests: {cpu: "3"}}}
            """
        )
    )
    assert asked == {"cpu": 8, "pods": 1}


def test_overhead_comes_on_top_and_what_the_pod_says_takes_the_place_of_the_sum() -> None:
    asked = requests_of(
        spec(
            """
            overhead: {cpu: 250m}
            resources: {requests: {cpu: "10"}}
            containers:
              - {name: train, resources: {requests: {cpu: "3", memory: 2Gi}, limits: {nvidia.com/gpu: "1"}}}
            """
        )
    )
    assert asked == {"cpu": Fraction(41, 4), "memory": 2 * 2**30, "nvidia.com/gpu": 1, "pods": 1}


def test_other_resources_are_counted_as_cpu_is() -> None:
    asked = requests_of(
        spec(
            """
            overhead: {ephemeral-storage: 1Gi}
            initContainers:
              - {name: fetch, resources: {requests: {ephemeral-storage: 40Gi}}}
              - {name: proxy, restartPolicy: Always, resources: {requests: {rdma/hca: "1"}}}
              - {name: late, resources: {requests: {rdma/hca: "4"}}}
            containers:
              - {name: train, resources: {requests: {rdma/hca: "2", ephemeral-storage: 10Gi}, limits: {hugepages-2Mi: 4Mi}}}
              - {name: logs, resources: {requests: {ephemeral-storage: 5Gi}}}
            """
        )
    )
    assert asked == {"ephemeral-storage": 41 * 2**30, "rdma/hca": 5, "hugepages-2Mi": 2**22, "pods": 1}


def ports_of(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in requests_of(spec(text)).items() if name.startswith("hostPort/")}


def test_ports_of_the_node_are_those_of_what_runs_at_last() -> None:
    """As kube-scheduler counts them: containers and sidecars, by protocol, number and address; without hostPort it is none."""
    listening = ports_of(
        """
        initContainers:
          - {name: over, ports: [{containerPort: 1, hostPort: 1}]}
          - {name: proxy, restartPolicy: Always, ports: [{containerPort: 2, hostPort: 2}]}
        containers:
          - {name: a, ports: [{containerPort: 3, hostPort: 3, protocol: UDP}, {containerPort: 4}]}
          - {name: b, ports: [{containerPort: 3, hostPort: 3, protocol: UDP, hostIP: 0.0.0.0}]}
        """
    )
    assert listening == {"hostPort/TCP/2": 1000, "hostPort/UDP/3": 1000}


def test_a_port_on_one_address_leaves_it_to_others() -> None:
    listening = ports_of(
        """
        containers:
          - {name: a, ports: [{containerPort: 3, hostPort: 3, hostIP: 10.0.0.1}, {containerPort: 5, hostPort: 5, hostIP: 10.0.0.1}]}
          - {name: b, ports: [{containerPort: 3, hostPort: 3, hostIP: 10.0.0.2}, {containerPort: 5, hostPort: 5}]}
        """
    )
    on_one = {"hostPort/TCP/3/10.0.0.1": 1000, "hostPort/TCP/3/10.0.0.2": 1000, "hostPort/TCP/5/10.0.0.1": 1000}
    assert listening == {"hostPort/TCP/3": 2, "hostPort/TCP/5": 1000, **on_one}
