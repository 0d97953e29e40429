"""Attachments of a message: the files that it mentions as @FILE, and a line for each part."""

import os
import re
from collections.abc import Callable, Iterable

from convo.chat.files import load_attachment
from convo.history.items import Json
from convo.terminal.terminal import format_count

FILE_MENTION = re.compile(r"""(?<!\S)@(?:"(?P<quoted>[^"\n]+)"|(?P<bare>[^\s"]\S*))""")

TRAILING_PUNCTUATION = ".,;:!?)]}'\""
"""Characters that may follow a file name in a sentence."""

FILE_PATH_START = re.compile(r"~?/|\.\.?/")

FILE_SUFFIX = re.compile(r"[^\s/.][^/]*\.[A-Za-z][A-Za-z0-9]{0,4}", re.ASCII)
"""A name with a suffix; a longer word after a dot is more often part of a program: @pytest.fixture."""

NON_FILE_CHARS = re.compile(r"[@(){}\[\]<>=|;:]")
"""Characters of addresses and programs, rare in names of files."""


def _find_mentioned_files(text: str, pasted: Iterable[str], is_file: Callable[[str], bool]) -> list[str]:
    """Find the files that a message mentions outside pasted text, each once, in order."""
    # Compared whole: "@notes.md" is a part of a pasted "@notes.md.orig". A search in the paste for each of 100,000
    # mentions took 30 s.
    pasted_mentions = {mention[0] for pasted_text in pasted for mention in FILE_MENTION.finditer(pasted_text)}
    files: dict[str, None] = {}
    for mention in FILE_MENTION.finditer(text):
        if mention[0] in pasted_mentions:
            continue
        bare = mention["bare"] or ""
        # The mark of "what is @dot.png?" is not a part of the name, unless a file has it.
        names = [mention["quoted"]] if mention["quoted"] else [bare, bare.rstrip(TRAILING_PUNCTUATION)]
        files |= dict.fromkeys([name for name in names if name and is_file(name)][:1])
    return list(files)


def describe_missing_files(text: str, pasted: Iterable[str] = ()) -> list[str]:
    """Describe each file that a message mentions outside pasted text and that does not exist, in one line.

    Only text that looks like the path of a file is reported: no @name, no @scope/package, no address.
    """
    mentioned = _find_mentioned_files(text, pasted, _looks_like_path)
    names = dict.fromkeys(name.rstrip(TRAILING_PUNCTUATION) for name in mentioned)
    return [
        f"@{name}: {'a folder' if os.path.isdir(os.path.expanduser(name)) else 'no such file'}; sent as text"
        for name in names
        if not is_existing_file(name)
    ]


def _looks_like_path(name: str) -> bool:
    name = name.rstrip(TRAILING_PUNCTUATION)
    if NON_FILE_CHARS.search(name):
        return False
    first, has_folder, _ = name.partition("/")
    return bool(
        FILE_PATH_START.match(name)
        or FILE_SUFFIX.fullmatch(os.path.basename(name))
        or (has_folder and os.path.isdir(first))
    )


def load_mentioned_files(text: str, pasted: Iterable[str]) -> list[tuple[str, dict[str, Json]]]:
    """Load the files that a message mentions, each with its name. Raises Unreadable."""
    return [(name, load_attachment(name)) for name in _find_mentioned_files(text, pasted, is_existing_file)]


def list_mentioned_files(text: str) -> list[str]:
    """Return the names of the existing files that `text` mentions."""
    return _find_mentioned_files(text, (), is_existing_file)


def is_existing_file(name: str) -> bool:
    return os.path.isfile(os.path.expanduser(name))


def format_attachment(name: str, part: Json) -> str:
    """Format an attachment as one line: name, type of content part, size."""
    kind = {"input_image": "image", "input_file": "file"}.get(part.get("type"), "text")
    # Images and files are base64: four characters for three bytes.
    size = len(part.get("image_url") or part.get("file_data") or part.get("text") or "")
    return f"  + {name} ({kind}, {_format_attachment_size(size if kind == 'text' else size * 3 // 4)})"


def _format_attachment_size(size: int) -> str:
    if size < 1024:
        return format_count(size, "byte")
    return f"{size / 1024:,.0f} KB" if size < 1024**2 else f"{size / 1024**2:,.1f} MB"
