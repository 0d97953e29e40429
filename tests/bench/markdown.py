"""The cost of rendering a streamed answer, compared with a renderer that redraws all of it.

    python -m tests.bench.markdown [KILOBYTES ...]

Answers of several kinds arrive in pieces of 16 characters, each of which is rendered. `examined` is the
number of characters that the parser examined for each character of the answer, `written` the number of
bytes that were written to the terminal for each one. Both must be constant from 10 KB to 1 MB, or the
script ends with 1. The naive renderer parses and prints everything at each piece; it is shown at 5 and 10 KB.
Last, the processor time for 100 KB that arrive at once, and in pieces of 5 characters as fast as they are written, as
a ratio to rich, which renders the blocks of the same text once; all three in turn, the medians of `ROUNDS`. Then the
processor time of one frame when each is drawn after 32 characters, which 200 tokens a second bring in 40 ms.
"""

import asyncio
import io
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markdown import Markdown

from convo.terminal.markdown import MarkdownOptions, MarkdownRenderer, limit_nesting, render_blocks

OPTIONS = MarkdownOptions(has_color=True, color_system="truecolor")

KILOBYTES = (10, 100, 1_000)
NAIVE = (5, 10)
PIECE = 16
MAX_GROWTH = 1.25
"""The factor by which the cost of a character may grow in a longer answer."""

ANSWER = """## Where the state lives

The *owner* keeps it, and **only one** has it: see [the guide](https://example.com/guide) for `--session` and the rest.

1. The client resends the whole path.
2. The server has it, and a turn sends what is new:
   - a conversation is `conv_...`
   - a chain is `resp_...`

```python
def turn(path: list[str]) -> str:
    # what the owner lacks
    return "\\n".join(path)
```

| owner | sends |
|-------|-------|
| chain | delta |

> It costs what it costs: $a * b$ tokens.

"""

KINDS: dict[str, tuple[str, Callable[[int], str]]] = {
    "answer": ("", lambda _: ANSWER),
    "fence": ("```python\n", lambda at: f"def f{at}(x): return x + {at}  # a comment\n"),
    "paragraph": ("", lambda _: "words and **bold** ones that go on, with `code` and [links](https://x.y) "),
    "list": ("", lambda at: f"- item {at} with some words in it\n  - and one within\n"),
    "numbers": ("", lambda at: f"{at + 1}. item with *words*\n\n   and a paragraph\n"),
    "table": ("| a | b |\n|---|---|\n", lambda at: f"| {at} | some words |\n"),
    "quote": ("", lambda at: f"> line {at} of a quote that does not end\n"),
    "short lines": ("", lambda _: "ab\n"),
    "wide": ("", lambda _: "日本語の文章はスペースなしで書かれる。"),
    "one line": ("```\n", lambda _: "x" * 100),
    "open marks": ("", lambda _: "costs $5 and a *b or _c "),
}
"""The start of an answer of each kind, and a function that returns its nth following part."""


@dataclass(frozen=True)
class Cost:
    """The cost of an answer; `most_open` is the maximum number of characters of open blocks."""

    length: int
    written: int
    examined: int
    seconds: float
    most_open: int = 0

    @property
    def written_per_char(self) -> float:
        return self.written / self.length

    @property
    def examined_per_char(self) -> float:
        return self.examined / self.length


class Bytes(io.StringIO):
    """A terminal that counts the bytes written to it."""

    count = 0

    def write(self, text: str) -> int:
        self.count += len(text.encode())
        return len(text)


def make_text(kind: str, length: int) -> str:
    """Return an answer of one kind with about `length` characters."""
    head, body = KINDS[kind]
    parts, remaining, position = [head], length - len(head), 0
    while remaining > 0:
        parts.append(body(position))
        remaining -= len(parts[-1])
        position += 1
    return "".join(parts)


def streaming(text: str, piece: int) -> Cost:
    """Measure convo's renderer."""
    out, longest = Bytes(), 0
    page = MarkdownRenderer(out, OPTIONS, lambda: (80, 24))
    started_at = time.process_time()
    for position in range(0, len(text), piece):
        page.write(text[position : position + piece])
        longest = max(longest, page.stream.open_chars)
    page.finish()
    return Cost(len(text), out.count, page.stream.examined_chars, time.process_time() - started_at, longest)


def naive(text: str, piece: int) -> Cost:
    """Measure a renderer that clears the screen, parses and prints everything at each piece."""
    out, examined, options = Bytes(), 0, MarkdownOptions(79, has_color=True)
    started_at = time.process_time()
    for position in range(0, len(text), piece):
        lines = text[: position + piece].split("\n")
        examined += position + piece
        out.write("\x1b[H\x1b[J" + "\n".join(render_blocks([*map(limit_nesting, lines)], options)))
    return Cost(len(text), out.count, examined, time.process_time() - started_at, len(text))


HEAD = f"{'kind':<12} {'KB':>6} {'examined':>8} {'written':>8} {'ms a KB':>8}"


def format_row(kind: str, cost: Cost) -> str:
    figures = f"{cost.examined_per_char:>8.1f} {cost.written_per_char:>8.2f} {cost.seconds * 1e6 / cost.length:>8.1f}"
    return f"{kind:<12} {cost.length / 1e3:>6.0f} {figures}"


def linear(kind: str, lengths: Sequence[int]) -> bool:
    """Print the lines of one kind; return whether the cost of a character is constant."""
    costs = [streaming(make_text(kind, length * 1_000), PIECE) for length in lengths]
    for cost in costs:
        print(format_row(kind, cost), flush=True)
    first, last = costs[0], costs[-1]
    return (
        last.examined_per_char < MAX_GROWTH * first.examined_per_char
        and last.written_per_char < MAX_GROWTH * first.written_per_char
    )


ROUNDS = 5
RATIO_CHARS = 100_000
SMALL_PIECE = 5
FRAME_CHARS = 32


def rich_blocks(text: str) -> float:
    """Return the seconds in which rich renders the blocks of an answer of kind "answer" once."""
    console = Console(file=Bytes(), force_terminal=True, color_system="truecolor", width=79)
    started_at = time.process_time()
    for part in text.split(ANSWER):
        for block in (part, ANSWER):
            console.print(Markdown(block))
    return time.process_time() - started_at


async def in_pieces(text: str) -> float:
    """Return the seconds for a text in small pieces; the frames are limited by time, as in a chat."""
    page = MarkdownRenderer(Bytes(), OPTIONS, lambda: (80, 24))
    started_at = time.process_time()
    for position in range(0, len(text), SMALL_PIECE):
        page.write(text[position : position + SMALL_PIECE])
        await asyncio.sleep(0)
    page.finish()
    return time.process_time() - started_at


def frames(text: str) -> list[float]:
    """Return the milliseconds of processor time of each frame."""
    page = MarkdownRenderer(Bytes(), OPTIONS, lambda: (80, 24))
    durations = []
    for position in range(0, len(text), FRAME_CHARS):
        started_at = time.process_time()
        page.write(text[position : position + FRAME_CHARS])
        durations.append((time.process_time() - started_at) * 1e3)
    page.finish()
    return durations


def ratios() -> None:
    text = ANSWER * (RATIO_CHARS // len(ANSWER))
    floor, at_once, streamed = [], [], []
    for _ in range(ROUNDS):
        floor.append(rich_blocks(text))
        at_once.append(streaming(text, len(text)).seconds)
        streamed.append(asyncio.run(in_pieces(text)))
    base = statistics.median(floor)
    print(f"\n{len(text):,} characters: rich {base:.2f} s", end="")
    print(f", at once {statistics.median(at_once) / base:.2f}x, in pieces {statistics.median(streamed) / base:.2f}x")
    durations = sorted(frames(text))
    p50, p99 = (durations[int(len(durations) * share)] for share in (0.5, 0.99))
    print(f"a frame: p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {durations[-1]:.1f} ms")


def main() -> int:
    print(HEAD)
    for length in NAIVE:
        print(format_row("naive", naive(make_text("answer", length * 1_000), PIECE)), flush=True)
    lengths = sorted(map(int, sys.argv[1:])) or KILOBYTES
    all_passed = [linear(kind, lengths) for kind in KINDS]
    ratios()
    return 0 if all(all_passed) else 1


if __name__ == "__main__":
    sys.exit(main())
