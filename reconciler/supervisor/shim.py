"""Supervises one task: a tiny process that outlives the control plane and imports nothing but the standard library.

Started as `python -I -S shim.py FOLDER`, in a session of its own; the modules of this folder are all it has of this project.
The task's folder speaks for it (taskfiles.py names every file):

- `lock` is held as long as the shim lives, so no pid has to be trusted;
- `started` is written before the command runs, so a second shim for the same folder does nothing;
- `activity`, of a task that is to be watched, says until when it was, and for how long it had done nothing by then;
- `memory` says how much it has had at most, and `told` what it was told last;
- `terminal`, of a task that has one, is where to attach to it;
- `exit` is written when nothing of the task runs any more, its children and their children included.

The command waits in a fork until `started` is on the disk; if the shim dies before that, it never runs.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import math
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

if (
    __name__ == "__main__"
):  # Run by its path, it knows of no package; at the end, so that nothing hides the standard library.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from reconciler.supervisor import cgroup, processes, remains
from reconciler.supervisor.account import become
from reconciler.supervisor.activity import ActivityWatch
from reconciler.supervisor.container import CLEANING_S, command_in_container
from reconciler.supervisor.delivery import UndeliverableError, deliver
from reconciler.supervisor.log import BYTES_MAX_DEFAULT, CappedLog
from reconciler.supervisor.memory import Meter
from reconciler.supervisor.output import Output
from reconciler.supervisor.taskfiles import ABORT, EXIT, LEAVE, LOCK, LOG, STARTED, STOP, TASK, WORK, write_durably
from reconciler.supervisor.teller import TaskTeller
from reconciler.supervisor.terminal import Terminal, become_session_leader

COMMAND_NOT_FOUND, COMMAND_NOT_RUNNABLE, DEATH_BY_SIGNAL = 127, 126, 128
"""Exit codes as shells give them: POSIX.1-2024, XCU 2.8.2."""

_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.2
"""How soon an order is seen. It costs one `stat` each time."""
_KILL_POLL_S = 0.02
_RECORD_AGAIN_S = 1.0
_GO = b"g"


def main(folder: str) -> int:
    """Run the task in `folder` unless it was started or stopped before; returns when nothing of it runs."""
    os.chdir(folder)
    lock = _take_lock()
    if lock is None or any(map(os.path.exists, (STARTED, STOP, LEAVE))):
        return 0
    with open(TASK, encoding="utf-8") as file:
        task = json.load(file)
    _adopt_orphans()
    # A stray SIGTERM must not leave the task without its supervisor; SIGCHLD is waited for.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    if not _others_run(task["after"]):
        return 0
    log = CappedLog(LOG, task.get("logBytesMax", BYTES_MAX_DEFAULT))
    terminal = Terminal(log) if task["terminal"] else None
    shown = terminal or Output(log, task["account"])
    every_s = task["lookEveryS"]
    watch = ActivityWatch(every_s, lambda: terminal.keystrokes if terminal else 0) if every_s else None
    meter, tells = Meter(task["memoryLimit"], only_contained=bool(task["container"])), TaskTeller(task["growth"])
    leader = _start(task, shown)
    cleaning_s = CLEANING_S if task["container"] else 0.0
    status, stopped = _supervise(leader, watch, meter, tells, cleaning_s, hang_up=terminal is not None)
    ended = {"code": _exit_code(status), "stopped": stopped, "lost": remains.why_lost() if stopped else ""}
    shown.drain()
    log.close()
    if ended["code"] and remains.ended_by_kernel(task):
        meter.note_end_by_kernel()
        _say(meter.verdict())
    for complaint in remains.clear(task):
        _say(complaint)
    _record_exit({**ended, "at": _now_ms(), "memory": meter.seen()})
    if terminal is not None:
        terminal.close(ended)
    return 0


def _take_lock() -> int | None:
    """The lock's descriptor, kept open until this process ends; None where another shim has the task.

    A process that looks whether the lock is held takes it for a moment, so one refusal proves nothing.
    """
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    while not os.path.exists(STARTED):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_KILL_POLL_S)
        else:
            return lock
    return None


def _others_run(folders: list[str]) -> bool:
    """Wait until these tasks beside this one have begun; False where it was told to end before."""
    while not all(os.path.exists(os.path.join("..", folder, STARTED)) for folder in folders):
        if any(map(os.path.exists, (STOP, LEAVE))):
            return False
        time.sleep(_POLL_S)
    return True


def _adopt_orphans() -> None:
    """Make descendants our children when their parents end, so that none escapes by becoming a daemon: prctl(2)."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "this system can't make the supervisor adopt its task's orphans")


def _start(task: dict[str, Any], shown: Terminal | Output) -> int:
    """Fork, record the command's process, then let it go."""
    wait_end, go_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go_end)
        _become_command(task, wait_end, shown)
    os.close(wait_end)
    if isinstance(shown, Output):
        _lead_own_group(pid)
    shown.serve()
    write_durably(STARTED, json.dumps({"pid": pid, "startTicks": processes.start_ticks(pid), "at": _now_ms()}))
    os.write(go_end, _GO)
    os.close(go_end)
    return pid


def _lead_own_group(pid: int) -> None:
    """Called on both sides of the fork, so that the group exists before either goes on."""
    os.setpgid(pid, pid)


def _become_command(task: dict[str, Any], wait_end: int, shown: Terminal | Output) -> NoReturn:
    code = COMMAND_NOT_RUNNABLE
    command = task["command"]
    try:
        if isinstance(shown, Output):
            _lead_own_group(0)
        else:
            become_session_leader(shown.task_end, task["account"])
        if os.read(wait_end, 1) != _GO:
            os._exit(code)
        _take_over_streams(shown)
        given = deliver(task)
        if task["container"]:
            command, environment = command_in_container(task, given), task["container"]["environment"]
        else:
            cgroup.enter_new(task["cgroup"])
            environment = {**task["environment"], **given}
            os.chdir(WORK)
            become(task["account"])
            _enter(task["workingDirectory"], environment["QUORATE_NODE"])
        os.execvpe(command[0], command, environment)  # noqa: S606  (running it is what this is for)
    except FileNotFoundError:
        code = COMMAND_NOT_FOUND
        path = (task["container"] or task)["environment"].get("PATH", "")
        if "/" in command[0] and not task["container"]:
            _say(
                f"command not found: {command[0]!r}, in the folder {os.getcwd()} of {task['environment']['QUORATE_NODE']}"
            )
        else:
            _say(f"command not found: {command[0]!r}. Give its full path, or check that it is in PATH={path}")
    except UndeliverableError as error:
        _say(str(error))
    except (OSError, ValueError) as error:
        _say(f"can't run {command[0]!r}: {error}")
    finally:
        os._exit(code)


def _enter(folder: str, node: str) -> None:
    """Go to where the job wants to begin, by the rights of its account; "": it stays where it is. Raises UndeliverableError."""
    if not folder:
        return
    try:
        os.chdir(folder)
    except OSError as error:
        raise UndeliverableError(
            f"can't begin in {folder} on node {node} as user {os.getuid()}: {error.strerror}. Have it there, open to that user, "
            "or submit the job with another workingDirectory (--chdir DIR; --chdir none: an empty folder of its own)"
        ) from None


def _take_over_streams(shown: Terminal | Output) -> None:
    """All are its terminal, if it has one; else there is nothing to read, and everything written goes to the pipe.

    Signals are as a fresh process has them.
    """
    write = shown.task_end
    read = os.open(os.devnull, os.O_RDONLY) if isinstance(shown, Output) else write
    for source, target in ((read, 0), (write, 1), (write, 2)):
        os.dup2(source, target)
    # Python ignores two, and the server's parent others: under nohup, no Ctrl-C would ever reach the task.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _say(message: str) -> None:
    with suppress(OSError):  # A full disk: it can't be told, and the task must not lose its supervisor for it.
        os.write(2, f"quorate: {message}\n".encode())


def _supervise(
    leader: int, watch: ActivityWatch | None, meter: Meter, tells: TaskTeller, cleaning_s: float, *, hang_up: bool
) -> tuple[int, bool]:
    """Wait until no descendant is left. Returns the command's wait status, and whether a stop came before it ended.

    `cleaning_s`: how long what is left when the command has ended may take to end by itself. `hang_up`: SIGHUP goes with SIGTERM,
    which shells at a terminal ignore.
    """
    status: int | None = None
    stopped = False
    kill_at: float | None = None
    unseen = {STOP, LEAVE, ABORT}
    while True:
        ended, nobody_left = _reap(leader)
        status = ended if status is None else status
        if nobody_left:
            return status or 0, stopped
        if watch is not None:
            watch.look()
        tells.look(leader if status is None else None)
        if status is None and meter.look():
            _say(meter.verdict())
            kill_at = 0.0  # At once, as the kernel would: with a grace it could take the memory of others.
        for told in sorted(filter(os.path.exists, unseen)):
            unseen.remove(told)
            if kill_at is None:
                stopped = status is None
                _signal_group(leader, signal.SIGTERM)
                if hang_up:
                    _signal_group(leader, signal.SIGHUP)
            # Told twice, it has no longer than the shorter of the two.
            kill_at = min(math.inf if kill_at is None else kill_at, time.monotonic() + _grace_s(told))
        if kill_at is None and status is not None:
            kill_at = time.monotonic() + cleaning_s  # What the command left behind must not keep its devices.
        overdue = kill_at is not None and time.monotonic() >= kill_at
        if overdue:
            _kill_descendants(leader)
        signal.sigtimedwait({signal.SIGCHLD, signal.SIGTERM}, _KILL_POLL_S if overdue else _POLL_S)


def _reap(leader: int) -> tuple[int | None, bool]:
    """Collect what has ended: the leader's wait status if it is among them, and whether no child is left."""
    status = None
    while True:
        try:
            pid, ended_with = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status, True
        if pid == 0:
            return status, False
        if pid == leader:
            status = ended_with


def _grace_s(told: str) -> float:
    with open(told, encoding="utf-8") as file:
        return float(json.load(file)["graceS"])


def _signal_group(leader: int, number: int) -> None:
    # The group may have ended by itself, or run as another user (sudo): then the task keeps its devices until it ends.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _kill_descendants(leader: int) -> None:
    """Kill the group and our children; their children become ours, and the next turn takes them."""
    _signal_group(leader, signal.SIGKILL)
    for pid in processes.children_of(os.getpid()):
        with suppress(PermissionError):
            os.kill(pid, signal.SIGKILL)  # Our own child until we reap it, so the number is surely its.


def _exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else DEATH_BY_SIGNAL - code


def _record_exit(ended: dict[str, Any]) -> None:
    """Write how it ended; on a full disk keep the lock and try again, rather than let a known outcome become `lost`."""
    while True:
        try:
            write_durably(EXIT, json.dumps(ended))
        except OSError:
            if not os.path.exists(STARTED):
                raise  # The folder is gone: it will never be asked for.
            time.sleep(_RECORD_AGAIN_S)
        else:
            return


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
