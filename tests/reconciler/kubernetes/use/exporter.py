"""What dcgm-exporter answers, over real HTTP: one server for each node, on an address of its own and one port."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Final

from reconciler.kubernetes.use.boards import Holdings, holdings_of
from reconciler.kubernetes.use.readings import BoardReading
from solver.model.cluster import DeviceId, Gpu, GpuType, Node, NodeName
from solver.model.quantities import Cpu, Duration, Instant, Memory
from solver.model.shape import Shape
from solver.model.snapshot import snapshot_of
from solver.model.workload import Job, JobName, JobSpec, QueueName, TaskGroup, TaskPlacement

BLANK: Final = 9223372036854775794.0
"""What the exporter prints of what the driver has no figure of."""
NOW: Final = Instant.parse("2026-03-01T12:00:00Z")
N1, N2 = NodeName("n1"), NodeName("n2")

Figures = dict[str, float]


def line(field: str, value: float, gpu: int, node: str, held_by: str = "", **more: str) -> str:
    """One line, with the labels that it has on Kubernetes."""
    labels = {
        "gpu": str(gpu),
        "UUID": f"GPU-{node}-{gpu}",
        "pci_bus_id": f"00000000:{gpu:02X}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA H100 80GB HBM3",
        "Hostname": node,
        **({"container": "main", "namespace": "team", "pod": held_by} if held_by else {}),
        **more,
    }
    return f"{field}{{{','.join(f'{name}={json.dumps(each)}' for name, each in labels.items())}}} {value}\n"


def text(node: str, gpus: dict[int, tuple[str, Figures]]) -> str:
    """The answer of one exporter: by GPU, the pod that has it ("" none) and its figures."""
    fields = sorted({field for _, figures in gpus.values() for field in figures})
    return "".join(
        f"# HELP {field} One of DCGM's.\n# TYPE {field} gauge\n"
        + "".join(line(field, of[field], gpu, node, pod) for gpu, (pod, of) in gpus.items() if field in of)
        for field in fields
    )


def busy(share: float) -> Figures:
    """What it tells by its defaults, of a GPU that is so busy."""
    return {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": share,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": share / 2,
        "DCGM_FI_PROF_DRAM_ACTIVE": share / 4,
        "DCGM_FI_DEV_GPU_UTIL": 100.0,
        "DCGM_FI_DEV_FB_USED": 20_000.0,
        "DCGM_FI_DEV_FB_FREE": 60_000.0,
        "DCGM_FI_DEV_SM_CLOCK": 1980.0,
    }


@contextmanager
def exporter(answer: Callable[[], str], address: str = "127.0.0.1", port: int = 0) -> Iterator[int]:
    """Serves it at /metrics; yields the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer().encode()
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((address, port), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def node_of(name: NodeName, gpus: int = 4) -> Node:
    held = tuple(Gpu(DeviceId(f"{name}/{index}"), index) for index in range(gpus))
    return Node(name, "pool", Cpu(64_000), Memory(2**40), GpuType("H100"), held)


def job_on(name: str, node: NodeName, *indexes: int) -> Job:
    devices = tuple(DeviceId(f"{node}/{index}") for index in indexes)
    spec = JobSpec(QueueName("q"), (TaskGroup("worker", 1, Shape(gpus=len(devices))),))
    placed = (TaskPlacement("worker", 0, node, devices),)
    return Job(JobName(name), NOW, spec, phase="running", placement=placed)


def world(*jobs: Job, nodes: tuple[NodeName, ...] = (N1, N2)) -> Holdings:
    """Each job's only pod is called as the job, in the namespace team."""
    snapshot = snapshot_of(NOW, map(node_of, nodes), jobs)
    return holdings_of(snapshot, {("team", job.name): job.name for job in jobs})


def reading(field: str, value: float, at_s: float = 0, *, divided: bool = False) -> BoardReading:
    return BoardReading(N1, "GPU-1", None, field, NOW.after(Duration(int(at_s * 1_000))), value, divided)
