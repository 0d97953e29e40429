"""Which process holds something, and whether it still lives.

A killed process cannot let go of what it held. On the same machine its successor can see that it
is gone; anywhere else it has to wait until the right runs out.
"""

import os
import socket
from hashlib import sha256
from pathlib import Path


def this_process() -> str:
    """This process for others to look up: machine, pid and when it began, with colons between."""
    return f"{_machine()}:{os.getpid()}:{_began(os.getpid())}"


def is_dead(holder: str) -> bool:
    """Whether `holder` ran on this machine and is gone; False when that cannot be known.

    holder:  as `this_process` names one, with or without more behind it
    """
    machine, pid, began = _parts(holder)
    if machine not in (_machine(), socket.gethostname()) or not pid.isdigit():
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
    machine, pid, _ = _parts(holder)
    return f"process {pid} on {machine.partition('@')[0]}" if pid else holder


def process_tag() -> str:
    """This process in letters that a file's name may have: a hash of the machine, the pid and its start."""
    return f"{_machine_hash()}-{os.getpid()}-{_began(os.getpid())}"


def is_tag_here(tag: str) -> bool:
    """Whether a process of this machine made `tag`."""
    return tag.partition("-")[0] == _machine_hash()


def is_tag_of_dead(tag: str) -> bool:
    """Whether the process of this machine that made `tag` has ended."""
    _, pid, began = tag.split("-")
    return is_dead(f"{_machine()}:{pid}:{began}")


def _machine_hash() -> str:
    return sha256(_machine().encode()).hexdigest()[:8]


def _machine() -> str:
    """The host and its table of processes: a container may share the name, and counts from 1."""
    try:
        table = os.readlink("/proc/self/ns/pid")
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}@{''.join(filter(str.isdigit, table))}"


def _parts(holder: str) -> tuple[str, str, str]:
    machine, pid, began, *_ = [*holder.split(":"), "", ""]
    return machine, pid, began


def _began(pid: int) -> str:
    """When a process began, in the kernel's ticks; "" where that cannot be read, and once it has ended.

    One that has ended stays in the table until its parent asks how.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in ("Z", "X") else fields[18]
