"""Files with a run state: read and replaced as a whole, and readable only by their owner."""

import os
import stat
import tempfile
from io import BytesIO
from pathlib import Path

import pytest

from convo.chat.state_file import is_state_like, load_state_file, read_state_stream, save_state_file
from convo.errors import ConvoError, InvalidRunState, InvalidUsage, NotFound, StoreFault, StoreFull, Unreadable
from convo.runstate.reader import parse_run_state
from tests.runstate.snapshots import malformed, snapshot

DATA = snapshot("0.24.0__schema1.21__single_approval.json")
STATE = parse_run_state(DATA)


def file_mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_saved_state_is_loaded_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("older")
    path.chmod(0o666)
    save_state_file(STATE, str(path))
    assert (load_state_file(str(path)), file_mode(path)) == (STATE, 0o600)
    assert os.listdir(tmp_path) == ["state.json"]


def test_a_symbolic_link_is_kept_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "state.json")
    save_state_file(STATE, str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink()
    assert load_state_file(str(tmp_path / "state.json")) == STATE


@pytest.mark.needs("posix")
def test_a_full_disk_leaves_the_file_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    path = tmp_path / "state.json"
    path.write_text("older")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(StoreFull):
            save_state_file(STATE, str(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (path.read_text(), os.listdir(tmp_path)) == ("older", ["state.json"])


def test_an_unwritable_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreFault):
        save_state_file(STATE, str(tmp_path / "nope" / "state.json"))
    with pytest.raises(Unreadable):
        save_state_file(STATE, str(tmp_path))


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load_state_file(str(tmp_path / "nope.json"))
    with pytest.raises(Unreadable, match="is a folder"):
        load_state_file(str(tmp_path))


def test_an_error_starts_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(malformed()["27_agent_null.json"])
    with pytest.raises(InvalidRunState) as caught:
        load_state_file(str(path))
    assert caught.value.message.startswith(f"{path}: $.current_agent ")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (DATA, True),
        (DATA[:60], True),
        (DATA.decode().encode("utf-16"), True),
        (b"[" + DATA + b"]", True),
        (b'{"current_agent": {}, "context": {}}', True),
        (b'{"context": {}, "current_agent": {}}', True),
        (b'[{"role": "user", "content": "what is $schemaVersion?"}]', False),
        (b'{"reasoning": {"context": "current_turn"}, "input": []}', False),
        (b'{"role": "user", "content": "{\\"current_agent\\": 1}"}\n{"role": "user"}', False),
        (b'{"role": "user"}', False),
        (b"", False),
    ],
)
def test_a_state_is_detected_by_its_content(data: bytes, expected: bool) -> None:
    assert is_state_like(data) is expected


def save_error(path: str, kind: type[ConvoError]) -> tuple[str, str]:
    """The message and the hint of the error when a state is written to `path`."""
    with pytest.raises(kind) as caught:
        save_state_file(STATE, path)
    assert type(caught.value) is kind
    return caught.value.message, caught.value.hint


def test_a_place_for_no_state_comes_with_the_next_step(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in (str(tmp_path), str(tmp_path / "pipe")):
        assert save_error(name, Unreadable) == (
            f"{name} is not a regular file, so a state cannot be written to it",
            "choose another file",
        )
    assert save_error(str(tmp_path / "nope" / "a"), StoreFault) == (
        f"{tmp_path / 'nope'} is not a folder",
        "choose another file",
    )
    assert save_error("", InvalidUsage) == ("the name of the state file is empty", "choose another file")


@pytest.mark.parametrize("name", ["", "nope.json"])
def test_a_missing_state_comes_with_the_form_of_one(name: str) -> None:
    with pytest.raises(NotFound) as caught:
        load_state_file(name)
    assert (caught.value.kind, caught.value.handle) == ("file", name)
    assert (
        caught.value.hint
        == "pass a file with the output of RunState.to_string(); convo approvals decides the calls of a session"
    )


def test_a_state_in_the_home_folder_can_be_named_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    save_state_file(STATE, "~/state.json")
    assert load_state_file("~/state.json") == STATE


def test_one_byte_more_than_a_state_may_have_is_read_and_no_more() -> None:
    """The reader refuses a larger state by its size."""
    zeros = BytesIO(bytes(65 * 1024 * 1024))
    assert len(read_state_stream(zeros)) == zeros.tell() == 64 * 1024 * 1024 + 1


@pytest.mark.parametrize(
    "marker", ['{"$schemaVersion": 1', '{"current_agent": 1', '{"current_turn": 1', '{"currentAgent": 1']
)
def test_each_field_of_a_state_makes_one_recognized(marker: str) -> None:
    assert is_state_like(marker.encode())
    assert is_state_like(marker.encode("utf-16-le"))
    assert not is_state_like(marker.encode().replace(b"e", b"_"))


def test_a_state_below_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unreadable) as caught:
        load_state_file(str(tmp_path / "file" / "state.json"))
    assert caught.value.message == f"{tmp_path}/file/state.json cannot be read: not a directory"
    with pytest.raises(Unreadable) as folder:
        load_state_file(str(tmp_path))
    assert folder.value.message == f"{tmp_path} is a folder, not a state"


@pytest.mark.needs("posix")
def test_a_state_in_a_folder_without_permission_is_refused_before_it_is_written() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            if os.getuid() == 0:
                os.setuid(65534)  # the permissions of a folder do not bind root
            try:
                save_state_file(STATE, f"{folder}/state.json")
            except ConvoError as error:
                os.write(writing, f"{error.code}: {error.message}; {error.hint}".encode())
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            assert pipe.read().decode() == f"store_read_only: {folder} cannot be written; choose another file"
        Path(folder).chmod(0o700)
