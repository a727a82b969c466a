"""Stands in for nvidia-cuda-mps-control: a daemon that speaks the commands that Quorate sends, and writes down what it was told.

Run with -d it begins a daemon that lives on by itself; else it passes its standard input on to the one whose pipes it is given.
"""

from __future__ import annotations

import os
import socket
import sys

CONTROL = "control"
SAID = "said"
SERVER = "4711"
"""The number of the one server that it always has."""


def main() -> int:
    pipe = os.path.join(os.environ["CUDA_MPS_PIPE_DIRECTORY"], CONTROL)
    if sys.argv[1:] == ["-d"]:
        return begin(pipe)
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(pipe)
        except OSError:
            print("Cannot find MPS control daemon process")
            return 1
        line.sendall(sys.stdin.buffer.read())
        line.shutdown(socket.SHUT_WR)
        print(line.recv(1_000).decode(), end="")
    return 0


def begin(pipe: str) -> int:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(pipe)
    listener.listen()
    if os.fork() == 0:
        os.setsid()
        serve(listener)
    return 0


def serve(listener: socket.socket) -> None:
    log = os.path.join(os.environ["CUDA_MPS_LOG_DIRECTORY"], SAID)
    write(log, f"pid {os.getpid()} sees {os.environ['CUDA_VISIBLE_DEVICES']}")
    while True:
        line, _ = listener.accept()
        with line:
            for said in line.makefile().read().splitlines():
                if said == "get_server_list":
                    line.sendall(f"{SERVER}\n".encode())
                    continue
                write(log, said)
                if said.startswith("quit"):
                    os._exit(0)


def write(log: str, text: str) -> None:
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
