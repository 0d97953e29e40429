"""The pages with commands in them, and what stands around them when they are carried out.

A page that talks to a model says in a comment what the model answers: `<!-- replies: [...] -->`, in the
form of `convo.models.scripted`. It is answered by a server on loopback that stands where OpenAI's would,
and by one where Ollama's would. `<!-- keyless -->` leaves the key away; `<!-- postgresql -->` gives the page a
database, as $DATABASE_URL.

    python -m tests.words.pages            write into every page what its commands say now
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

from tests import databases
from tests.conftest import LEAKS, TERMINAL
from tests.loopback import Loopback, serving
from tests.running import ROOT
from tests.words.ollama import answering
from tests.words.transcript import Stage, Told, matches, told

COOKBOOK = ROOT / ".github" / "cookbook"
FIRST_MINUTES = ROOT / "tests" / "first_minutes"

OPENAI = "https://api.openai.com/v1"

REPLIES = re.compile(r"<!-- replies: (.*?) -->", re.DOTALL)
CONSOLE = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)


def recipes() -> list[Path]:
    return sorted(path for path in COOKBOOK.glob("*.md") if path.name != "README.md")


def first_minutes() -> list[Path]:
    return sorted(FIRST_MINUTES.glob("*.md"))


@contextmanager
def played(page: str, folder: Path, *, apart: bool = False) -> Iterator[tuple[list[Told], Loopback]]:
    """What the commands of a page said, and the server where OpenAI's would be, which keeps what it was asked."""
    (folder / "servers").mkdir()
    (folder / "here").mkdir()
    with ExitStack() as open_:
        loopback = open_.enter_context(serving(folder / "servers"))
        if found := REPLIES.search(page):
            loopback.replies(*json.loads(found[1]))
        environ = {"CONVO_HOME": str(folder / "home")}
        shown = {str(folder / "home" / "data"): "/home/you/.local/share/convo", loopback.url: OPENAI}
        shown |= {str(folder / "home" / "state"): "/home/you/.local/state/convo"}
        environ |= {} if "<!-- keyless -->" in page else loopback.environ
        if "ollama" in page:
            environ["OLLAMA_HOST"] = open_.enter_context(answering(REPLIES.findall(page)))
        if "<!-- postgresql -->" in page:
            environ["DATABASE_URL"] = url = databases.new_database(schema=False)
            open_.callback(databases.drop, url)
            shown[databases.name_of(url)] = "convo"
        yield Stage(folder / "here", apart, environ, shown).play(page), loopback


def rewritten(page: str, came: list[Told]) -> str:
    """The page with what its commands said; what it shows truly, with a `…` in it perhaps, stays."""
    said = iter(came)

    def block(found: re.Match[str]) -> str:
        shown = list(told(found[0]))
        got = [next(said) for _ in shown]
        kept = [one if matches(one.lines, list(new.lines)) else new for one, new in zip(shown, got, strict=True)]
        return "".join(f"$ {one.command}\n" + "".join(f"{line}\n" for line in one.lines) for one in kept)

    return CONSOLE.sub(block, page)


def main(names: list[str]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LEAKS) and name not in TERMINAL}
    for path in [*recipes(), *first_minutes()]:
        if names and path.stem not in names:
            continue
        text = path.read_text(encoding="utf-8")
        with (
            tempfile.TemporaryDirectory() as folder,
            patch.dict(os.environ, clean, clear=True),
            played(text, Path(folder)) as (came, _),
        ):
            path.write_text(rewritten(text, came), encoding="utf-8")
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main(sys.argv[1:])
