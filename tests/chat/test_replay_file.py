"""Replay files: a list of items that users may edit, and that readers find complete at any time."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from convo.chat.files import ReplayFile
from convo.errors import StoreFull, Unreadable
from convo.history.items import Item, assistant_message, user_message
from tests.command_runner import ROOT

ITEMS: list[Item] = [user_message("one"), assistant_message("two")]

WRITER = """
import sys
from convo.chat.files import ReplayFile
from convo.history.items import user_message
file = ReplayFile(sys.argv[1])
print("ready", flush=True)
for number in range(100_000):
    file.write([user_message(str(number)), user_message("x" * 100_000)])
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "talk.json"


def mode(place: Path) -> int:
    return stat.S_IMODE(place.stat().st_mode)


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " \n", "[]", "\ufeff[]"])
def test_an_empty_file_is_an_empty_conversation(text: str, place: Path) -> None:
    place.write_text(text, encoding="utf-8")
    assert ReplayFile(place).read() == []


def test_a_missing_file_is_an_empty_conversation_and_is_not_created(place: Path) -> None:
    file = ReplayFile(place)
    file.check_writable()
    assert (file.read(), file.exists()) == ([], False)


def test_items_are_read_as_they_were_written(place: Path) -> None:
    odd: list[Item] = [*ITEMS, {"type": "odd", "half": "\ud83d", "big": 2**63 + 1, "nested": {"null": None}}]
    ReplayFile(place).write(odd)
    assert ReplayFile(place).read() == odd


def test_handwritten_items_are_read(place: Path) -> None:
    place.write_text('[\n  {"role": "user",\n   "content": "größer"}\n]\n', encoding="utf-8")
    assert ReplayFile(place).read() == [{"role": "user", "content": "größer"}]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'[{"role": "user", "content": "hal', "is not JSON: "),
        (b"[1, 2]", "is not a list of items"),
        (b'[{"role": "user"}, "hi"]', "is not a list of items"),
        (b'{"role": "user"}', "is not a list of items"),
        (b"null", "is not a list of items"),
        (b"[" * 100_000, "is not JSON: "),
        (b'["caf\xe9"]', "cannot be read: it is not UTF-8"),
    ],
    ids=["half-written", "numbers", "mixed", "object", "null", "deep", "bytes"],
)
def test_a_file_that_is_no_list_of_items_is_refused_and_stays_unchanged(content: bytes, why: str, place: Path) -> None:
    place.write_bytes(content)
    with pytest.raises(Unreadable) as refused:
        ReplayFile(place).read()
    assert why in refused.value.message
    assert place.read_bytes() == content


def test_a_folder_is_refused(place: Path) -> None:
    place.mkdir()
    for refuse in (ReplayFile(place).read, ReplayFile(place).check_writable):
        with pytest.raises(Unreadable, match="is a folder, not a replay file"):
            refuse()


def test_a_change_by_another_process_is_detected(place: Path) -> None:
    file = ReplayFile(place)
    assert not file.is_changed()
    file.write(ITEMS)
    assert not file.is_changed()
    ReplayFile(place).write([*ITEMS, user_message("three")])
    assert file.is_changed()
    assert len(file.read()) == 3
    assert not file.is_changed()


# -- writing ---------------------------------------------------------------------------------------


def test_a_new_file_is_readable_only_by_its_owner(place: Path) -> None:
    ReplayFile(place).write(ITEMS)
    assert mode(place) == 0o600


def test_a_file_keeps_its_mode(place: Path) -> None:
    place.write_text("[]")
    place.chmod(0o640)
    ReplayFile(place).write(ITEMS)
    assert mode(place) == 0o640


def test_each_line_contains_one_item(place: Path) -> None:
    ReplayFile(place).write(ITEMS)
    first, *lines, last = place.read_text().splitlines()
    assert (first, last) == ("[", "]")
    assert [json.loads(line.removesuffix(",")) for line in lines] == ITEMS


@pytest.mark.needs("posix")
def test_a_symbolic_link_is_kept_and_its_target_is_written(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    place.symlink_to(folder / "real.json")
    file = ReplayFile(place)
    file.check_writable()
    file.write(ITEMS)
    assert place.is_symlink()
    assert ReplayFile(folder / "real.json").read() == ReplayFile(place).read() == ITEMS
    assert mode(folder / "real.json") == 0o600


@pytest.mark.needs("posix")
def test_circular_symbolic_links_are_refused(place: Path) -> None:
    place.symlink_to(place.name)
    file = ReplayFile(place)
    for refuse in (file.check_writable, file.read, lambda: file.write(ITEMS)):
        with pytest.raises(Unreadable):
            refuse()
    assert place.is_symlink()


@pytest.mark.parametrize(
    ("name", "why"),
    [("nope/talk.json", "is not a folder, so talk.json cannot be written there"), ("t" * 300, "cannot be reached")],
)
def test_an_unwritable_path_is_detected_in_advance(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=why):
        ReplayFile(tmp_path / name).check_writable()


def test_the_longest_possible_file_name_is_accepted(tmp_path: Path) -> None:
    file = ReplayFile(tmp_path / ("t" * 250 + ".json"))
    file.check_writable()
    file.write(ITEMS)
    assert file.read() == ITEMS


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.needs("posix")
def test_a_reader_sees_a_complete_list_even_if_writers_are_killed(place: Path) -> None:
    ReplayFile(place).write([user_message("none"), user_message("")])
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(place)], stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            seen = {len(ReplayFile(place).read()) for _ in range(20)}
            process.kill()
        assert seen == {2}
        assert len(ReplayFile(place).read()) == 2


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """Simulate a disk that is full after `size` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


@pytest.mark.needs("posix")
def test_a_full_disk_leaves_the_old_list_and_no_temporary_file(place: Path) -> None:
    file = ReplayFile(place)
    file.write(ITEMS)
    with no_file_larger_than(10_000), pytest.raises(StoreFull, match="no space left to write"):
        file.write([*ITEMS, user_message("x" * 100_000)])
    assert file.read() == ITEMS
    assert os.listdir(place.parent) == [place.name]
    file.write([*ITEMS, user_message("three")])
    assert len(file.read()) == 3


REFUSED = """
import os, sys
from convo.chat.files import ReplayFile
from convo.errors import ConvoError
from convo.history.items import user_message
if os.getuid() == 0:
    os.setuid(65534)    # the rights of a file do not bind root
file = ReplayFile(sys.argv[1])
for refuse in (file.check_writable, lambda: file.write([user_message("more")])):
    try:
        refuse()
    except ConvoError as refused:
        print(refused.code, refused.message.rpartition("/")[2])
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may read; the temporary folders of pytest belong to one user."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        yield Path(made)
        Path(made).chmod(0o700)


def refusals(place: Path) -> list[str]:
    """The errors for a user without permissions: from the check before a turn, and from the write after it."""
    command = [sys.executable, "-c", REFUSED, str(place)]
    return subprocess.run(
        command, stdout=subprocess.PIPE, encoding="utf-8", cwd=ROOT, timeout=60, check=True
    ).stdout.splitlines()


@pytest.mark.needs("posix")
def test_a_read_only_folder_is_detected_before_anything_is_sent(open_folder: Path) -> None:
    ReplayFile(open_folder / "talk.json").write(ITEMS)
    open_folder.chmod(0o555)
    assert refusals(open_folder / "talk.json") == [
        "store_read_only talk.json cannot be written",
        "store_read_only talk.json cannot be written: permission denied",
    ]
    assert ReplayFile(open_folder / "talk.json").read() == ITEMS


@pytest.mark.needs("posix")
def test_a_read_only_file_is_detected_before_anything_is_sent(open_folder: Path) -> None:
    ReplayFile(open_folder / "talk.json").write(ITEMS)
    (open_folder / "talk.json").chmod(0o444)
    assert refusals(open_folder / "talk.json")[0] == "store_read_only talk.json cannot be written"


@pytest.mark.needs("posix")
def test_an_inaccessible_folder_is_detected_before_anything_is_sent(open_folder: Path) -> None:
    (open_folder / "locked").mkdir(mode=0o700)
    (open_folder / "locked").chmod(0 if os.getuid() else 0o700)
    assert refusals(open_folder / "locked" / "talk.json") == [
        "unreadable talk.json cannot be reached: permission denied",
        "store_read_only talk.json cannot be written: permission denied",
    ]
