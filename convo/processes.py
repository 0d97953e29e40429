"""Which process holds something, and whether it still lives.

A killed process cannot let go of what it held. On the same machine its successor can see that it
is gone; anywhere else it has to wait until the right runs out.
"""

import os
import socket
from pathlib import Path


def this_process() -> str:
    """This process for others to look up: host, pid and when it began, with colons between."""
    return f"{socket.gethostname()}:{os.getpid()}:{_began(os.getpid())}"


def is_dead(holder: str) -> bool:
    """Whether `holder` ran on this machine and is gone; False when that cannot be known.

    holder:  as `this_process` names one, with or without more behind it
    """
    host, pid, began = _parts(holder)
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return bool(began) and _began(int(pid)) != began


def spoken(holder: str) -> str:
    """`holder` in words."""
    host, pid, _ = _parts(holder)
    return f"process {pid} on {host}" if pid else holder


def _parts(holder: str) -> tuple[str, str, str]:
    host, pid, began, *_ = [*holder.split(":"), "", ""]
    return host, pid, began


def _began(pid: int) -> str:
    """When a process began, in the kernel's ticks, where that can be read; "" elsewhere."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
