"""Replay files: a list of items that users may edit, and that readers find complete at any time."""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from convo.chat.item_file import ReplayFile
from convo.errors import StoreFull, Unreadable
from convo.history.items import Item, Json, assistant_message, user_message
from convo.inspect.serialize import BranchItem, ConversationDocument, document_to_json
from tests.command_runner import ROOT

ITEMS: list[Item] = [user_message("one"), assistant_message("two")]

WRITER_SCRIPT = """
import sys
from convo.chat.item_file import ReplayFile
from convo.history.items import user_message
file = ReplayFile(sys.argv[1])
print("ready", flush=True)
for number in range(100_000):
    file.write([user_message(str(number)), user_message("x" * 100_000)])
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "talk.json"


def file_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- reading ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " \n", "[]", "\ufeff[]"])
def test_an_empty_file_is_an_empty_conversation(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")
    assert ReplayFile(path).read() == []


def test_a_missing_file_is_an_empty_conversation_and_is_not_created(path: Path) -> None:
    file = ReplayFile(path)
    file.check_writable()
    assert (file.read(), file.exists()) == ([], False)


def test_items_are_read_as_they_were_written(path: Path) -> None:
    items: list[Item] = [*ITEMS, {"type": "odd", "half": "\ud83d", "big": 2**63 + 1, "nested": {"null": None}}]
    ReplayFile(path).write(items)
    assert ReplayFile(path).read() == items


def test_handwritten_items_are_read(path: Path) -> None:
    path.write_text('[\n  {"role": "user",\n   "content": "größer"}\n]\n', encoding="utf-8")
    assert ReplayFile(path).read() == [{"role": "user", "content": "größer"}]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b'[{"role": "user", "content": "hal', "is not JSON: "),
        (b"[1, 2]", "is not a list of items"),
        (b'[{"role": "user"}, "hi"]', "is not a list of items"),
        (b'{"model": "m"}', "is not a list of items"),
        (b"null", "is not a list of items"),
        (b"[" * 100_000, "is not JSON: "),
        (b'["caf\xe9"]', "cannot be read: it is not UTF-8"),
    ],
    ids=["half-written", "numbers", "mixed", "object", "null", "deep", "bytes"],
)
def test_a_file_that_is_no_list_of_items_is_refused_and_stays_unchanged(
    content: bytes, reason: str, path: Path
) -> None:
    path.write_bytes(content)
    with pytest.raises(Unreadable) as caught:
        ReplayFile(path).read()
    assert reason in caught.value.message
    assert path.read_bytes() == content


def test_a_folder_is_refused(path: Path) -> None:
    path.mkdir()
    for refuse in (ReplayFile(path).read, ReplayFile(path).check_writable):
        with pytest.raises(Unreadable, match="is a folder, not a replay file"):
            refuse()


def test_a_change_by_another_process_is_detected(path: Path) -> None:
    file = ReplayFile(path)
    assert not file.is_changed()
    file.write(ITEMS)
    assert not file.is_changed()
    ReplayFile(path).write([*ITEMS, user_message("three")])
    assert file.is_changed()
    assert len(file.read()) == 3
    assert not file.is_changed()


# -- writing ---------------------------------------------------------------------------------------


def test_a_new_file_is_readable_only_by_its_owner(path: Path) -> None:
    ReplayFile(path).write(ITEMS)
    assert file_mode(path) == 0o600


def test_a_file_keeps_its_mode(path: Path) -> None:
    path.write_text("[]")
    path.chmod(0o640)
    ReplayFile(path).write(ITEMS)
    assert file_mode(path) == 0o640


def test_each_line_contains_one_item(path: Path) -> None:
    ReplayFile(path).write(ITEMS)
    first, *lines, last = path.read_text().splitlines()
    assert (first, last) == ("[", "]")
    assert [json.loads(line.removesuffix(",")) for line in lines] == ITEMS


@pytest.mark.needs("posix")
def test_a_symbolic_link_is_kept_and_its_target_is_written(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    path.symlink_to(folder / "real.json")
    file = ReplayFile(path)
    file.check_writable()
    file.write(ITEMS)
    assert path.is_symlink()
    assert ReplayFile(folder / "real.json").read() == ReplayFile(path).read() == ITEMS
    assert file_mode(folder / "real.json") == 0o600


@pytest.mark.needs("posix")
def test_circular_symbolic_links_are_refused(path: Path) -> None:
    path.symlink_to(path.name)
    file = ReplayFile(path)
    errors = []
    for refuse in (file.check_writable, file.read, lambda: file.write(ITEMS)):
        with pytest.raises(Unreadable) as caught:
            refuse()
        errors.append(caught.value.message)
    reason = "too many levels of symbolic links"
    assert errors == [f"{path} is a circular link", f"{path} cannot be read: {reason}", f"{path} is a circular link"]
    assert path.is_symlink()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("nope/talk.json", "is not a folder, so talk.json cannot be written there"), ("t" * 300, "cannot be reached")],
)
def test_an_unwritable_path_is_detected_in_advance(name: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=reason):
        ReplayFile(tmp_path / name).check_writable()


def test_the_longest_possible_file_name_is_accepted(tmp_path: Path) -> None:
    file = ReplayFile(tmp_path / ("t" * 250 + ".json"))
    file.check_writable()
    file.write(ITEMS)
    assert file.read() == ITEMS


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.needs("posix")
def test_a_reader_sees_a_complete_list_even_if_writers_are_killed(path: Path) -> None:
    ReplayFile(path).write([user_message("none"), user_message("")])
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER_SCRIPT, str(path)], stdout=subprocess.PIPE, cwd=ROOT
        ) as process:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            lengths = {len(ReplayFile(path).read()) for _ in range(20)}
            process.kill()
        assert lengths == {2}
        assert len(ReplayFile(path).read()) == 2


@contextmanager
def limit_file_size(size: int) -> Iterator[None]:
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
def test_a_full_disk_leaves_the_old_list_and_no_temporary_file(path: Path) -> None:
    file = ReplayFile(path)
    file.write(ITEMS)
    with limit_file_size(10_000), pytest.raises(StoreFull, match="no space left to write"):
        file.write([*ITEMS, user_message("x" * 100_000)])
    assert file.read() == ITEMS
    assert os.listdir(path.parent) == [path.name]
    file.write([*ITEMS, user_message("three")])
    assert len(file.read()) == 3


WRITE_SCRIPT = """
import hashlib, os, socket, sys     # the other user may not read the standard library
from convo.chat.item_file import ReplayFile
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
    with tempfile.TemporaryDirectory() as folder_name:
        Path(folder_name).chmod(0o777)
        yield Path(folder_name)
        Path(folder_name).chmod(0o700)


def write_errors(path: Path) -> list[str]:
    """The errors for a user without permissions: from the check before a turn, and from the write after it."""
    command = [sys.executable, "-c", WRITE_SCRIPT, str(path)]
    return subprocess.run(
        command, stdout=subprocess.PIPE, encoding="utf-8", cwd=ROOT, timeout=60, check=True
    ).stdout.splitlines()


@pytest.mark.needs("posix")
def test_a_read_only_folder_is_detected_before_anything_is_sent(open_folder: Path) -> None:
    ReplayFile(open_folder / "talk.json").write(ITEMS)
    open_folder.chmod(0o555)
    assert write_errors(open_folder / "talk.json") == [
        "store_read_only talk.json cannot be written",
        "store_read_only talk.json cannot be written: permission denied",
    ]
    assert ReplayFile(open_folder / "talk.json").read() == ITEMS


@pytest.mark.needs("posix")
def test_a_read_only_file_is_detected_before_anything_is_sent(open_folder: Path) -> None:
    ReplayFile(open_folder / "talk.json").write(ITEMS)
    (open_folder / "talk.json").chmod(0o444)
    assert write_errors(open_folder / "talk.json")[0] == "store_read_only talk.json cannot be written"


@pytest.mark.needs("posix")
def test_an_inaccessible_folder_is_detected_before_anything_is_sent(open_folder: Path) -> None:
    (open_folder / "locked").mkdir(mode=0o700)
    (open_folder / "locked").chmod(0 if os.getuid() else 0o700)
    assert write_errors(open_folder / "locked" / "talk.json") == [
        "unreadable talk.json cannot be reached: permission denied",
        "store_read_only talk.json cannot be written: permission denied",
    ]


LINK_ON_BRANCH = {
    "id": "resp_2",
    "saw": 1,
    "head": -1,
    "sent": 1,
    "strategy": "session",
    "endpoint": ["embedded", None, None],
    "model": "a/b",
    "status": "completed",
    "created_at": 1.5,
    "parent": None,
    "conversation_id": None,
    "previous_response_id": None,
    "seconds": 1.0,
    "first_token_s": None,
    "parameters": {},
    "usage": None,
    "error": None,
    "stored": True,
}
EXPORT = document_to_json(
    ConversationDocument(
        tuple(ITEMS), len(ITEMS), "talk", links=(LINK_ON_BRANCH,), other_items=(BranchItem(1, user_message("other")),)
    )
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (json.dumps(ITEMS), lambda items: items),
        (json.dumps({"model": "m", "input": ITEMS}), lambda items: {"model": "m", "input": items}),
        (json.dumps(EXPORT), lambda items: {**EXPORT, "acknowledged": len(items), "items": items}),
    ],
    ids=["list", "request", "export"],
)
def test_a_file_is_written_in_the_form_in_which_it_was_read(
    before: str, after: Callable[[list[Item]], Json], path: Path
) -> None:
    path.write_text(before)
    file, items = ReplayFile(path), [*ITEMS, user_message("more")]
    assert file.read() == ITEMS
    file.write(items)
    assert json.loads(path.read_text()) == after(items)
    assert ReplayFile(path).read_valid() == items


def test_a_file_of_lines_stays_one_and_an_edit_of_an_export_leaves_out_its_requests(path: Path) -> None:
    for text, count in (("".join(json.dumps(item) + "\n" for item in ITEMS), 1), (json.dumps(EXPORT), 0)):
        path.write_text(text)
        file = ReplayFile(path)
        file.read()
        file.write([user_message("else")])
        assert path.read_text().startswith('{"type": "message"' if count else '{"object": "convo.conversation"')
        assert ReplayFile(path).read() == [user_message("else")]
    assert "other_items" not in json.loads(path.read_text())
