"""The identity of a process, and the detection of a dead process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest

from convo.runtime import describe_process, is_process_dead, process_identity
from tests.fork_server import run_convo

pytestmark = pytest.mark.needs("posix")

PRINT_IDENTITY = "from convo.runtime import process_identity; print(process_identity(), flush=True); input()"


@pytest.fixture
def other_process() -> Iterator[subprocess.Popen[str]]:
    """Another process, which prints its identity and waits for input."""
    with subprocess.Popen(
        [sys.executable, "-c", PRINT_IDENTITY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        yield child
        child.kill()


def process_name(child: "subprocess.Popen[str]") -> str:
    assert child.stdout
    return child.stdout.readline().strip()


def kill(child: "subprocess.Popen[str]") -> None:
    """Kill with SIGKILL and wait until the process has ended, without reaping it."""
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)


def test_a_live_process_is_not_dead(other_process: "subprocess.Popen[str]") -> None:
    assert not is_process_dead(process_identity())
    assert not is_process_dead(process_name(other_process))


def test_a_killed_process_is_dead_once_its_parent_waited(other_process: "subprocess.Popen[str]") -> None:
    name = process_name(other_process)
    kill(other_process)
    other_process.wait()
    assert is_process_dead(name)


@pytest.mark.needs("linux")
def test_a_killed_process_is_dead_before_its_parent_waited(other_process: "subprocess.Popen[str]") -> None:
    name = process_name(other_process)
    kill(other_process)
    assert is_process_dead(name)


def test_the_suffix_of_a_holder_name_is_ignored(other_process: "subprocess.Popen[str]") -> None:
    name = process_name(other_process)
    assert not is_process_dead(f"{name}:hold_1")
    kill(other_process)
    other_process.wait()
    assert is_process_dead(f"{name}:hold_1")


@pytest.mark.needs("linux")
def test_a_reused_process_id_does_not_count_as_alive() -> None:
    machine, pid, start_time = process_identity().split(":")
    assert is_process_dead(f"{machine}:{pid}:{int(start_time) - 1}")
    assert not is_process_dead(f"{machine}:{pid}:{start_time}")


@pytest.mark.parametrize("holder", ["elsewhere@1:1:1", "elsewhere:999999:5", "somebody", "", "a:b:c"])
def test_processes_of_other_machines_are_unknown(holder: str) -> None:
    assert not is_process_dead(holder)


@pytest.mark.needs("linux")
def test_a_container_with_the_same_host_name_has_other_processes() -> None:
    machine, _, start_time = process_identity().split(":")
    nobody = 2**22 + 1
    assert is_process_dead(f"{machine}:{nobody}:{start_time}")
    assert not is_process_dead(f"{machine}0:{nobody}:{start_time}")


def test_the_process_of_another_user_counts_as_alive() -> None:
    machine, _, _ = process_identity().split(":")
    assert not is_process_dead(f"{machine}:1:")


def test_a_holder_name_is_a_valid_file_name(tmp_path: Path) -> None:
    (tmp_path / process_identity()).touch()
    assert [file.name for file in tmp_path.iterdir()] == [process_identity()]


def test_a_holder_is_described_in_words() -> None:
    assert describe_process("desk@4026531836:42:17:hold_1") == "process 42 on desk"
    assert describe_process("somebody") == "somebody"


# -- processes of tests ----------------------------------------------------------------------------


class OutOfTime(Exception):
    """Raised in a test that waits for a process, as by its time limit."""


@pytest.mark.full
@pytest.mark.needs("linux")
def test_a_process_that_started_too_late_for_its_test_is_not_that_of_the_next_one() -> None:
    def stop_waiting(*_: object) -> None:
        raise OutOfTime

    assert run_convo(["--version"]).returncode == 0
    listed = subprocess.run(
        ["pgrep", "--parent", str(os.getpid()), "-f", "tests.fork_server"], capture_output=True, check=True
    )
    server = int(listed.stdout.split()[-1])
    before = signal.signal(signal.SIGUSR1, stop_waiting)
    os.kill(server, signal.SIGSTOP)
    try:
        Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(OutOfTime):
            run_convo(["nope"])
    finally:
        os.kill(server, signal.SIGCONT)
        signal.signal(signal.SIGUSR1, before)
    assert run_convo(["--version"]).returncode == 0
