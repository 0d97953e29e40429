"""The time from the arrival of a token to its appearance in the terminal, while an answer streams.

    python -m tests.bench.frames [--tokens 1000] [--rate 200] [--columns 80]

A server on loopback sends the tokens of a Markdown answer (paragraphs, lists, code) at an even rate to `convo chat` in
a pseudo-terminal. The time of a token is from its write to the socket to the read of its text from the terminal, so it
includes the HTTP client, the parser, rich and the limit of 25 frames a second. Prints p50, p99 and the maximum in
milliseconds, and the number of frames; ends with 1 if the 99th percentile is above `MAX_P99_MS`.
"""

import argparse
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.upstream import MESSAGE, response
from tests.terminal.pty_session import TIMEOUT_S, at_terminal

MAX_P99_MS = 100
PARAGRAPH_WORDS, LIST_ITEMS, ITEM_WORDS, CODE_LINES, LINE_WORDS = 60, 5, 6, 10, 4

TOKEN = re.compile(r"t\d{5}")


class Token(NamedTuple):
    """One delta: text around a word that occurs only once."""

    word: str
    text: str


def answer_tokens() -> Iterator[Token]:
    """Yield the tokens of an answer without an end."""
    words = (f"t{number:05}" for number in count())
    while True:
        yield from (Token(word, f"{word} ") for word in islice(words, PARAGRAPH_WORDS))
        for item in range(LIST_ITEMS):
            start = "\n\n- " if item == 0 else "\n- "
            yield from (
                Token(word, f"{start if at == 0 else ''}{word} ") for at, word in enumerate(islice(words, ITEM_WORDS))
            )
        for line in range(CODE_LINES):
            start, end = "\n\n```python\n" if line == 0 else "\n", "\n```\n\n" if line == CODE_LINES - 1 else ""
            yield from (
                Token(word, f"{start if at == 0 else ''}{word} {end if at == LINE_WORDS - 1 else ''}")
                for at, word in enumerate(islice(words, LINE_WORDS))
            )


@contextmanager
def run_token_server(tokens: Sequence[Token], wait: Callable[[int], None], sent_at: dict[str, float]) -> Iterator[str]:
    """Run a server whose answer has these tokens; yields its base URL.

    wait:     called with the number of each token before it is sent
    sent_at:  gets the time at which each word is sent
    """
    position = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    text = "".join(token.text for token in tokens)
    message = {**MESSAGE, "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if not self.path.endswith("/responses"):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self._send("response.created", response=response("in_progress"))
            self._send("response.output_item.added", output_index=0, item={**message, "content": []})
            for number, token in enumerate(tokens):
                wait(number)
                sent_at[token.word] = time.monotonic()
                self._send("response.output_text.delta", **position, delta=token.text, logprobs=[])
            self._send("response.output_item.done", output_index=0, item=message)
            self._send("response.completed", response=response("completed", message))

        def _send(self, kind: str, **event: Any) -> None:
            self.wfile.write(f"event: {kind}\ndata: {json.dumps({'type': kind, **event})}\n\n".encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def watch_tokens(
    base_url: str, last_word: str, columns: int, on_token: Callable[[str], None] = lambda word: None
) -> tuple[dict[str, float], int]:
    """Ask in a chat at a pseudo-terminal; return the time at which each word was first shown, and the number of reads.

    on_token:  called with each word when it is shown
    """
    shown_at: dict[str, float] = {}
    reads, rest = 0, ""
    environ = {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": "sk-bench"}
    with at_terminal("chat", "-m", "openai/bench", "-n", "bench", columns=columns, env=environ) as terminal:
        terminal.wait_for_prompt()
        terminal.type_keys("hello\r")
        while last_word not in shown_at:
            rest += terminal.child.read_nonblocking(65_536, TIMEOUT_S)
            now, reads = time.monotonic(), reads + 1
            for word in TOKEN.findall(rest):
                if word not in shown_at:
                    shown_at[word] = now
                    on_token(word)
            rest = rest[-len(last_word) :]
    return shown_at, reads


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=200, help="tokens per second")
    parser.add_argument("--columns", type=int, default=80)
    options = parser.parse_args()
    tokens, started_at = list(islice(answer_tokens(), options.tokens)), list[float]()

    def wait(number: int) -> None:
        started_at[:] = started_at or [time.monotonic()]
        time.sleep(max(0.0, started_at[0] + number / options.rate - time.monotonic()))

    sent_at: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, run_token_server(tokens, wait, sent_at) as base_url:
        os.environ["CONVO_HOME"] = str(Path(folder) / "home")
        shown_at, reads = watch_tokens(base_url, tokens[-1].word, options.columns)
    delays = sorted(1_000 * (shown_at[word] - sent_at[word]) for word in sent_at)
    seconds = sent_at[tokens[-1].word] - sent_at[tokens[0].word]
    p99 = statistics.quantiles(delays, n=100)[98]
    print(f"{len(tokens):,} tokens in {seconds:.1f} s ({(len(tokens) - 1) / seconds:.0f}/s), {reads:,} frames")
    print(f"p50 {statistics.median(delays):.1f} ms   p99 {p99:.1f} ms   max {delays[-1]:.1f} ms")
    return int(p99 > MAX_P99_MS)


if __name__ == "__main__":
    sys.exit(main())
