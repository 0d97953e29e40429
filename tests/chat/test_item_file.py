"""Item files: every format in which a file may contain items."""

import json
import os
from pathlib import Path

import pytest

from convo.chat.item_file import (
    UNNAMED_FILE,
    ItemFile,
    check_new_item_file,
    parse_item_file,
    read_item_file,
    write_item_file,
)
from convo.errors import InvalidUsage, NotFound, Unreadable
from convo.inspect.serialize import ConversationDocument, document_to_json, document_to_lines

HI = {"role": "user", "content": "hi"}
HELLO = {"role": "assistant", "content": "hello"}


@pytest.mark.parametrize(
    ("text", "member"),
    [
        (json.dumps([HI, HELLO]), ""),
        ("\ufeff" + json.dumps([HI, HELLO], indent=2), ""),
        (f"{json.dumps(HI)}\n\n{json.dumps(HELLO)}\n", ""),
        (json.dumps({"model": "m", "input": [HI, HELLO]}), "input"),
        (json.dumps({"object": "list", "data": [HI, HELLO]}), "data"),
    ],
)
def test_every_format_contains_the_same_items(text: str, member: str, tmp_path: Path) -> None:
    path = tmp_path / "items"
    path.write_text(text, encoding="utf-8")
    result = read_item_file(str(path))
    assert (result.items, result.list_field) == ((HI, HELLO), member)


def test_an_export_with_its_responses_is_read_as_items(tmp_path: Path) -> None:
    document = ConversationDocument((HI, HELLO), 2, "monads")
    json_file, lines_file = tmp_path / "whole.json", tmp_path / "lines.jsonl"
    json_file.write_text(json.dumps(document_to_json(document)))
    lines_file.write_text("\n".join(map(json.dumps, document_to_lines(document))))
    assert [read_item_file(str(path)).items for path in (json_file, lines_file)] == [(HI, HELLO)] * 2
    write_item_file(str(tmp_path / "new.json"), [HI], read_item_file(str(json_file)))
    assert json.loads((tmp_path / "new.json").read_text()) == [HI]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_unicode_line_separators_in_a_string_do_not_end_a_line(separator: str, newline: str, tmp_path: Path) -> None:
    """Other programs do not escape these characters in JSON strings."""
    item = {"role": "user", "content": f"one{separator}two"}
    path = tmp_path / "items.jsonl"
    path.write_bytes(newline.join(json.dumps(each, ensure_ascii=False) for each in (item, HELLO)).encode())
    assert read_item_file(str(path)).items == (item, HELLO)


def test_an_endless_device_is_refused_and_a_pipe_is_read() -> None:
    with pytest.raises(Unreadable, match="/dev/zero is a device that never ends"):
        read_item_file("/dev/zero")
    read_fd, write_fd = os.pipe()
    with os.fdopen(write_fd, "w") as writer:
        writer.write(json.dumps(HI))
    assert read_item_file(f"/dev/fd/{read_fd}").items == (HI,)
    os.close(read_fd)


def test_a_device_that_ends_is_read() -> None:
    with pytest.raises(Unreadable, match=r"^/dev/null is empty$"):
        read_item_file("/dev/null")


def test_a_single_line_is_a_history_of_one_item(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps(HI) + "\n")
    assert read_item_file(str(path)).items == (HI,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"role": "user", "con', "is not JSON: "),
        ('{"role": "user"}\n{"role": "us', ", line 2, is not JSON: "),
        ("[1, 2]", " is not a list of items"),
        ('{"model": "m"}', " is not a list of items"),
        ('"hi"', " is not a list of items"),
    ],
)
def test_a_file_without_items_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "items"
    path.write_text(text)
    with pytest.raises(Unreadable) as caught:
        read_item_file(str(path))
    assert message in caught.value.message


def test_an_empty_list_is_an_empty_history_and_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "items").write_text("[]")
    assert read_item_file(str(tmp_path / "items")).items == ()
    (tmp_path / "items").write_text("\n")
    with pytest.raises(Unreadable, match="is empty"):
        read_item_file(str(tmp_path / "items"))


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_item_file(str(tmp_path / "none.json"))


def test_items_are_written_in_the_format_of_their_source(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "m", "input": [HI], "previous_response_id": "resp_1"}))
    write_item_file(str(tmp_path / "new.json"), [HI, HELLO], read_item_file(str(request)))
    write_item_file(str(tmp_path / "new.jsonl"), [HI, HELLO])
    assert json.loads((tmp_path / "new.json").read_text()) == {
        "model": "m",
        "previous_response_id": "resp_1",
        "input": [HI, HELLO],
    }
    assert read_item_file(str(tmp_path / "new.jsonl")).items == (HI, HELLO)
    assert len((tmp_path / "new.jsonl").read_text().splitlines()) == 2


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "there.json"
    path.write_text("mine")
    with pytest.raises(InvalidUsage):
        write_item_file(str(path), [HI])
    assert path.read_text() == "mine"


LIST_HINT = 'use a list of items, such as [{"role": "user", "content": "hi"}]'
PAGE_HINT = "convo import {}, if convo exported this page; then use the session"
TORN_HINT = "convo import {} --skip-incomplete, which leaves out the line, or fix the file"
TRANSCRIPT_HINT = "convo import {}, if Codex or Claude Code wrote it; then use the session"
FIX_HINT = "fix the file, which may be incomplete, or choose another file"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (" \n", "{} is empty", LIST_HINT),
        ("[1]", "{} is not a list of items", LIST_HINT),
        ('[{"role": "user"}, {"a": 1}]', "{}: item 2 has neither a type nor a role", LIST_HINT),
        (
            '[{"type": "response_item", "payload": {}}]',
            "{}: item 1 is a 'response_item' record with a payload, not an item of the API",
            TRANSCRIPT_HINT,
        ),
        (
            '[{"type": "user", "message": {}}]',
            "{}: item 1 is a 'user' record with a message, not an item of the API",
            TRANSCRIPT_HINT,
        ),
        *(
            (
                json.dumps([{"type": "log", field: {}}]),
                f"{{}}: item 1 is a 'log' record with a {field}, not an item of the API",
                f"extract the items first: jq -c '.{field}' FILE > items.jsonl",
            )
            for field in ("response", "item", "event", "data", "record", "part")
        ),
        ('{"role": "user"}\n{\n{"role": "user"}', "{}, line 2, is not JSON: ", FIX_HINT),
        ('{"role": "user"}\n{', "{}, line 2, is not JSON: ", TORN_HINT),
        ("nonsense", "{} is not JSON: ", FIX_HINT),
        ("<HTML>", "{} is not JSON: ", PAGE_HINT),
        (
            "\n <!DOCTYPE html>",
            "{} is not JSON: ",
            PAGE_HINT,
        ),
    ],
)
def test_the_error_of_a_file_names_the_place_and_the_next_step(
    text: str, message: str, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "items"
    path.write_text(text)

    with pytest.raises(Unreadable) as caught:
        read_item_file(str(path))

    assert caught.value.message.startswith(message.replace("{}", str(path)))
    assert caught.value.hint == hint.replace("{}", str(path))


def test_a_member_of_a_record_that_is_no_object_is_an_item_of_its_own(tmp_path: Path) -> None:
    item = {"type": "tomorrows_kind", "message": "text", "data": [1]}
    (tmp_path / "items").write_text(json.dumps([item]))
    assert read_item_file(str(tmp_path / "items")).items == (item,)


def test_a_folder_and_a_missing_file_come_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=r" is a folder, not a replay file$") as folder:
        read_item_file(str(tmp_path))
    with pytest.raises(NotFound) as missing:
        read_item_file(str(tmp_path / "none"))
    with pytest.raises(InvalidUsage, match=r" already exists$") as existing:
        write_item_file(str(tmp_path), [HI])

    assert (folder.value.hint, missing.value.hint) == ("choose a file in it", "check the path")
    assert existing.value.hint == "choose another name; existing files are not overwritten"


def test_a_request_is_written_with_its_fields_an_indented_object_and_an_export_as_a_list(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "m", "input": [HI]}))
    source = read_item_file(str(request))
    assert (source.request_fields, source.export, source.text) == ({"model": "m"}, None, request.read_text())

    write_item_file(str(tmp_path / "new.json"), [HI], source)
    assert (tmp_path / "new.json").read_text() == json.dumps({"model": "m", "input": [HI]}, indent=1) + "\n"


def test_a_file_that_is_not_text_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "items").write_bytes(b'["caf\xe9"]')
    with pytest.raises(Unreadable) as caught:
        read_item_file(str(tmp_path / "items"))
    assert caught.value.message == f"{tmp_path}/items cannot be read: it is not UTF-8"


def test_an_export_that_is_invalid_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "export"
    document = document_to_json(ConversationDocument((HI,), 1, "monads"))
    path.write_text(json.dumps({**document, "version": 99}))
    with pytest.raises(Unreadable) as newer:
        read_item_file(str(path))
    assert newer.value.message == f"{path}: unsupported document version 99"
    assert newer.value.hint == "upgrade convo-state"
    path.write_text("\n".join([*map(json.dumps, document_to_lines(ConversationDocument((HI,), 1, "monads"))), "{}"]))
    with pytest.raises(Unreadable) as lines:
        read_item_file(str(path))
    assert lines.value.message == f"{path}: line 3 is neither an item nor a link"


def test_an_export_is_kept_with_its_text(tmp_path: Path) -> None:
    document = ConversationDocument((HI, HELLO), 2, "monads")
    text = json.dumps(document_to_json(document))
    lines = "\n".join(map(json.dumps, document_to_lines(document)))
    assert parse_item_file("a", text) == ItemFile((HI, HELLO), text, "items", export=document)
    assert parse_item_file("a", lines) == ItemFile((HI, HELLO), lines, "", export=document)
    rows = json.dumps(HI) + "\n" + json.dumps(HELLO)
    assert parse_item_file("a", rows) == ItemFile((HI, HELLO), rows, has_lines=True)
    assert parse_item_file("a", json.dumps(HI)) == ItemFile((HI,), json.dumps(HI), has_lines=True)


def test_a_text_whose_caller_names_it_has_no_name_in_its_errors() -> None:
    with pytest.raises(Unreadable) as caught:
        parse_item_file(UNNAMED_FILE, '[{"a": 1}]')
    assert caught.value.message == "item 1 has neither a type nor a role"
    with pytest.raises(Unreadable, match=r"^the file is empty$"):
        parse_item_file(UNNAMED_FILE, "")


def test_a_home_folder_and_an_unwritable_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_item_file("~/items.json", [HI])
    assert read_item_file("~/items.json").items == (HI,)
    with pytest.raises(Unreadable, match="is a folder, not a replay file"):
        read_item_file("~")
    with pytest.raises(Unreadable, match=r"is not a folder, so a\.json cannot be written there"):
        check_new_item_file(str(tmp_path / "nope" / "a.json"))
