"""The pages with commands, and the environment in which their commands run.

A page that uses a model defines the model's answers in a comment, `<!-- replies: [...] -->`, in the form of
`convo.models.scripted`; they apply until the next such comment. A server on loopback in place of OpenAI and another in
place of Ollama send them. `<!-- keyless -->` omits the API key; `<!-- postgresql -->` creates a database for the page,
with its URL in $DATABASE_URL. `<!-- sections -->` gives each section an environment of its own.

    python -m tests.docs.pages            update every page with the current output of its commands
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from unittest.mock import patch

from tests import databases
from tests.command_runner import ROOT
from tests.conftest import LEAKS, TERMINAL
from tests.docs.ollama import run_ollama
from tests.docs.transcript import MACHINE, CommandOutput, TranscriptRunner, blocks, matches, parse_console
from tests.loopback_server import LoopbackServer, run_loopback_server

COOKBOOK = ROOT / ".github" / "cookbook"
GETTING_STARTED = ROOT / "tests" / "getting_started"
API = ROOT / ".github" / "API.md"
README = ROOT / "README.md"

OPENAI = "https://api.openai.com/v1"

REPLIES = re.compile(r"<!-- replies: (.*?) -->", re.DOTALL)
CONSOLE = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.DOTALL | re.MULTILINE)


def cookbook_pages() -> list[Path]:
    return sorted(path for path in COOKBOOK.glob("*.md") if path.name != "README.md")


def getting_started() -> list[Path]:
    return sorted(GETTING_STARTED.glob("*.md"))


def sections(page: str) -> list[str]:
    """The parts of a page that run separately; joined they are the page."""
    return re.split(r"(?<=\n)(?=## )", page) if "<!-- sections -->" in page else [page]


@contextmanager
def run_page(
    page: str, folder: Path, *, in_processes: bool = False
) -> Iterator[tuple[list[CommandOutput], LoopbackServer]]:
    """Run a page; yield the output of its commands and the server in place of OpenAI, which records requests."""
    (folder / "servers").mkdir()
    (folder / "here").mkdir()
    with ExitStack() as open_:
        loopback = open_.enter_context(run_loopback_server(folder / "servers"))
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environ = {"CONVO_HOME": str(folder / "home"), "PATH": programs}
        replacements = {loopback.url: OPENAI}
        for home in ("home", *(block.name for block in blocks(page) if block.language == MACHINE)):
            for kind, shown in (("data", ".local/share"), ("state", ".local/state"), ("config", ".config")):
                replacements[str(folder / home / kind)] = f"/home/you/{shown}/convo"
        replacements[str(folder / "here")] = "/home/you"
        environ |= {} if "<!-- keyless -->" in page else loopback.environ
        if "ollama" in page:
            environ["OLLAMA_HOST"] = open_.enter_context(run_ollama(REPLIES.findall(page)))
        if "<!-- postgresql -->" in page:
            environ["DATABASE_URL"] = url = databases.new_database(schema=False)
            open_.callback(databases.drop, url)
            replacements[databases.database_name(url)] = "convo"
        runner = TranscriptRunner(
            folder / "here", in_processes, environ, replacements, lambda text: loopback.replies(*json.loads(text))
        )
        yield runner.run(page), loopback


def updated_page(page: str, outputs: list[CommandOutput]) -> str:
    """Return the page with new outputs. An output that still matches, perhaps with a `…`, is unchanged."""
    remaining = iter(outputs)

    def block(found: re.Match[str]) -> str:
        commands = list(parse_console(found[0]))
        got = [next(remaining) for _ in commands]
        updated = [one if matches(one.lines, list(new.lines)) else new for one, new in zip(commands, got, strict=True)]
        return "".join(f"$ {one.command}\n" + "".join(f"{line}\n" for line in one.lines) for one in updated)

    return CONSOLE.sub(block, page)


def main(names: list[str]) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(LEAKS) and name not in TERMINAL}
    for path in [*cookbook_pages(), *getting_started(), API, README]:
        if names and path.stem not in names:
            continue
        updated = []
        for section in sections(path.read_text(encoding="utf-8")):
            start = monotonic()
            with (
                tempfile.TemporaryDirectory() as folder,
                patch.dict(os.environ, clean, clear=True),
                run_page(section, Path(folder)) as (outputs, _),
            ):
                updated.append(updated_page(section, outputs))
            print(f"{monotonic() - start:5.1f} s  {path.relative_to(ROOT)}: {section.splitlines()[0].lstrip('# ')}")
        path.write_text("".join(updated), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
