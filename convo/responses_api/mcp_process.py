"""Run the program of an MCP server in a process group, and end that group with it.

The package `mcp` gives no process id, exit code or group of a server that ends by itself, so processes that the
server started would stay. This script runs in place of the server, whose stdin and stdout are its own:
`python -I -S mcp_process.py PROGRAM ARGUMENT...`. On stderr it writes one report as JSON, only if the server ended
while its stdin was open. The server's own messages on stderr are discarded: they may contain secrets, and clients of
the gateway see the report. The script imports the standard library only, because it starts with each connection.
"""

import json
import math
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

KILL_AFTER_S = 1.0
"""Seconds from SIGTERM to SIGKILL; `mcp` waits two seconds before it kills this process."""

CLOSED_STDIN_GRACE_S = 3.0
"""Seconds from the end of stdin to SIGTERM; `mcp` sends it after two, unless the gateway was killed."""

POLL_INTERVAL_S = 0.01
NOT_STARTED_EXIT_CODE = 127


def run_program(command: list[str]) -> int:
    """Run the program until it ends, SIGTERM arrives or the gateway is gone; return its exit code.

    The processes of its group are ended.
    """
    signals_in, signals_out = os.pipe()
    os.set_blocking(signals_out, False)
    signal.set_wakeup_fd(signals_out)
    received_signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received_signals.append(number))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        # A group of its own, so that processes which it started are ended with it.
        server = subprocess.Popen(  # noqa: S603  a command from the settings
            command, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        write_report({"problem": (error.strerror or "unknown error").lower()})
        return NOT_STARTED_EXIT_CODE
    poll, deadline = select.poll(), math.inf
    poll.register(signals_in, select.POLLIN)
    poll.register(0, 0)  # reports that the other end was closed, and no input
    while server.poll() is None and not received_signals and (remaining_s := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(None if math.isinf(remaining_s) else remaining_s * 1000):
            if descriptor == signals_in:
                os.read(signals_in, 1024)
            else:
                poll.unregister(0)
                deadline = time.monotonic() + CLOSED_STDIN_GRACE_S
    ended_by_itself = server.returncode is not None and not is_stdin_closed()
    end_process_group(server)
    if ended_by_itself:
        write_report({"exit": server.returncode})
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def is_stdin_closed() -> bool:
    """Whether the other end of stdin was closed: then the server was asked to end."""
    poll = select.poll()
    poll.register(0, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def end_process_group(server: "subprocess.Popen[bytes]") -> None:
    """End the server and the processes that it started, with SIGTERM and then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + KILL_AFTER_S
        try:
            os.killpg(server.pid, number)
            while time.monotonic() < deadline:
                server.poll()
                os.killpg(server.pid, 0)
                time.sleep(POLL_INTERVAL_S)
        except ProcessLookupError:
            break
        except PermissionError:  # a process of another user, or on macOS one that has ended
            time.sleep(POLL_INTERVAL_S)
    server.wait()


def write_report(report: dict[str, Any]) -> None:
    with suppress(OSError):
        os.write(2, json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(run_program(sys.argv[1:]))
