"""The page of clients, from the table in `tests/clients/clients.py` and the counts in `tests/recordings/table.json`.

python -m tests.docs.clients > .github/CLIENTS.md
"""

import json
import sys
from collections.abc import Iterator

from tests.clients.clients import CLIENTS, GATEWAY_SETTINGS, UPSTREAMS
from tests.command_runner import ROOT
from tests.docs.prose import wrap_prose
from tests.recordings import TABLE

PAGE = ROOT / ".github" / "CLIENTS.md"

HEAD = """\
# Clients

The clients that are tested with `convo serve`, each on four kinds of upstream. The task is the same for all of them: at
least five calls of tools (read, search, write or patch, run a command, finish), a CLI's own tools where it has some. A
scripted model in place of the upstream checks each request: the offered tools, and the output of every earlier call.

`uv run pytest -m clients tests/clients/test_clients.py` tests every cell and prints this table;
`python -m tests.docs.clients > .github/CLIENTS.md` writes this page from the same rows. The cookbook shows
[how to use a coding agent with any model](cookbook/use-codex-claude-code-or-opencode-with-any-model.md).

"""

SETTINGS = """
## Settings of the gateway

Codex offers `web_search` in every request, which only a server of the Responses API can run; for other servers it is
left out and reported. Codex and opencode choose their tools by the name of the model, so the aliases begin with a known
name.

"""

CLIENT_SETTINGS = """
## Settings of the clients

`ADDRESS` is the address of `convo serve`, for example `http://127.0.0.1:8788`; `MODEL` is a model or an alias of the
gateway, and `KEY` a key of its keys file (any text if it has none).
"""

RECORDED_ANSWERS = """
## Recorded answers of real servers

{total} answers that real servers gave, with what each of them means. A scripted server sends each one, and it is read
in every way that fits it: as a response, streamed and whole; passed through, by `convo serve` or `convo tap`; and as
the inspector shows its record. Text, reasoning, calls, refusal, end, error and token counts must be those of the
answer, its body must pass through unchanged, and the requests that the Responses API took must have no error in
`convo lint`.

The answers are not a part of this repository: `CONVO_TEST_RECORDINGS` names their archive. `uv run pytest -n 0 -m
recordings tests/recordings` replays them and compares this table.

"""

REFUSED_ANSWERS = """
A refused answer contains blocks that only the API of its server has and that the request did not ask for. It passes
through and is recorded; `/v1/responses` responds with an error that names the block:

"""


def rows() -> list[list[str]]:
    """The table as text, its head first; a refused cell has the number of its note."""
    notes = reasons()
    table = [["client", "version", "API", *UPSTREAMS]]
    for client in CLIENTS:
        separator = "==" if "==" in client.package else "@"
        version = client.package.rpartition(separator)[2]
        cells = (
            f"refused [{notes.index(client.refused[u]) + 1}]" if u in client.refused else "works" for u in UPSTREAMS
        )
        table.append([client.name, version, client.api, *cells])
    return table


def reasons() -> list[str]:
    """The reasons of refused cells, each once, in the order of the table."""
    return list(dict.fromkeys(client.refused[u] for client in CLIENTS for u in UPSTREAMS if u in client.refused))


def sections() -> Iterator[str]:
    yield HEAD
    head, *body = (f"| {' | '.join(row)} |\n" for row in rows())
    yield head + "|---" * (3 + len(UPSTREAMS)) + "|\n" + "".join(body)
    yield "\n" + "\n".join(f"* **{name}**: {text}" for name, text in UPSTREAMS.items()) + "\n"
    yield "\nA refused request gets status 400 before anything is sent to the upstream. The messages:\n\n"
    yield "".join(f"{number}. MODEL {reason}.\n" for number, reason in enumerate(reasons(), 1))
    yield f"{SETTINGS}```toml\n{GATEWAY_SETTINGS.format(url='https://example.com')}```\n"
    yield CLIENT_SETTINGS
    for client in CLIENTS:
        language, text = client.setup
        yield f"\n### {client.name}\n\n`{client.package}`, {client.api}:\n\n```{language}\n{text.strip()}\n```\n"
    yield from recorded_answers()


def recorded_answers() -> Iterator[str]:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    vendors: dict[str, dict[str, int]] = table["vendors"]
    total = {name: sum(counts[name] for counts in vendors.values()) for name in next(iter(vendors.values()))}
    yield RECORDED_ANSWERS.format(total=f"{total['answers']:,}")
    yield f"| server | {' | '.join(total)} |\n" + "|---" * (1 + len(total)) + "|\n"
    for name, counts in (*vendors.items(), ("all", total)):
        yield f"| {name} | {' | '.join(f'{count:,}' for count in counts.values())} |\n"
    yield REFUSED_ANSWERS + count_lines(table["refused"])
    yield "\nAnswers that are ambiguous (n.a.) are not sent:\n\n" + count_lines(table["not_sent"])
    if table["refused_requests"]:
        yield "\nRecorded requests that are refused, so that a simple one is sent in their place:\n\n"
        yield count_lines(table["refused_requests"])
    yield "\nThe answers are from the test suites of these projects:\n\n"
    yield count_lines({f"[{name}](https://github.com/{name})": count for name, count in table["sources"].items()})


def count_lines(counts: dict[str, int]) -> str:
    return "".join(f"* {name}: {count:,}\n" for name, count in counts.items())


def page() -> str:
    return wrap_prose("".join(sections()))


if __name__ == "__main__":
    sys.stdout.write(page())
