"""Screenshots of the inspector page, to look at: each screen in light and dark at four widths.

    python -m tests.docs.page_screens FOLDER [NAME ...]     write FOLDER/NAME-WIDTH-SCHEME.png

The store has about eighty requests of three days: a chain with branches, sessions, failures, images, Markdown, tool
calls, a finished and a paused agent run. A screenshot is as high as its page, at most 2,400 pixels.
"""

import argparse
import json
import random
import struct
import time
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args
from urllib.parse import quote

from playwright.sync_api import Page

from convo.history.items import Item, assistant_message, user_message
from convo.history.records import AgentCall, AgentRun, Link, Strategy
from convo.history.tree import Path as ItemPath
from convo.history.tree import root_key
from convo.runs.serialize import run_to_json
from convo.server.auth import KeysFile, create_api_key
from convo.stores.base import AppendItems, Transaction
from convo.stores.unstored_requests import DEFAULT_RETENTION, UnstoredRequest
from tests.runs.run_steps import call
from tests.runs.test_stored_approvals import paused
from tests.server.browser import chromium
from tests.server.gateway import RunningGateway, run_gateway
from tests.stores.chat_transactions import session

Scheme = Literal["light", "dark"]
WIDTHS, SCHEMES, MAX_HEIGHT = (360, 640, 1280, 1920), get_args(Scheme), 2400
MODELS = ("openai/gpt-6.1-terra", "openai/gpt-5", "anthropic/claude-sonnet-4-5", "ollama/qwen3:8b")
QUESTIONS = (
    "Plan a day in Oslo for two people who like art.",
    "Why does this query scan the whole table? EXPLAIN says Seq Scan on links, although (tenant, id) has an index.",
    "Translate the release notes into Norwegian, keep the code blocks as they are, and list the words that you left.",
    "Summarise the incident of last night in three sentences.",
    "Write a test for the parser of cursors.",
    "Refund order A1, the customer was charged twice",
    "hi",
)
ANSWER = """## A day in Oslo

Begin at the **opera house** at nine and walk along the harbour; see [the map](https://maps.example/oslo).

1. Munch museum until noon
2. Ferry to Bygdøy, with lunch at the fish hall

| place | opens | price |
|-------|-------|-------|
| Munch | 10:00 | 220 kr |
| Opera | 08:00 | free |

```python
for place in ("Munch", "Opera"):
    print(place)
```
"""
LOOK_UP = {
    "type": "function",
    "name": "look_up",
    "description": "Look an order up.",
    "parameters": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
}


def make_picture(width: int = 288, height: int = 96) -> str:
    """Return the URL of a PNG with a gradient."""
    rows = b"".join(b"\0" + bytes((40, 90 + y, 160)) * width for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n"
    for body in (b"IHDR" + header, b"IDAT" + zlib.compress(rows), b"IEND"):
        content += struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return f"data:image/png;base64,{b64encode(content).decode()}"


def usage_of(rng: random.Random) -> dict[str, Any]:
    tokens = rng.randrange(200, 40_000)
    return {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": tokens * rng.randrange(0, 9) // 10},
        "output_tokens": rng.randrange(20, 2000),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }


class PageStore:
    """Writes the requests of the screens into the store of a gateway."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway, self.rng, self.now = gateway, random.Random(7), time.time()
        self.root = root_key("local")

    def commit(self, *appends: AppendItems, links: tuple[Link, ...] = (), **more: Any) -> None:
        self.gateway.run(self.gateway.store.commit(Transaction(appends, links, **more)))

    def link(self, name: str, path: ItemPath, input_length: int, age_s: float, **more: Any) -> Link:
        fields: dict[str, Any] = {
            "model": MODELS[0],
            "strategy": Strategy.CHAIN,
            "created_at": self.now - age_s,
            "duration_s": self.rng.random() * 12,
            "usage": usage_of(self.rng),
            **more,
        }
        head = path.first(input_length).head
        return Link(name, head, path.head, 1, **{"status": "completed", **fields})

    def write(self) -> None:
        self.write_chain()
        self.write_other_requests()
        self.write_agent_run()
        self.write_paused_run()
        self.write_unstored_requests()

    def write_chain(self) -> None:
        """Write a session with six requests and two forks; its first message has an image, its tools a schema."""
        picture = {"type": "input_image", "image_url": make_picture()}
        text = {"type": "input_text", "text": QUESTIONS[0]}
        first: list[Item] = [{"role": "user", "content": [text, picture]}]
        path = ItemPath(self.root).append([*first, assistant_message(ANSWER)])
        parameters = {"instructions": "You are a guide. Answer in short sentences.", "tools": [LOOK_UP]}
        links, appends = [self.link("resp_oslo1", path, 1, 7200, parameters=parameters, session_id="ses_oslo")], []
        start = path
        for number, question in enumerate(("And if it rains?", "And with children?", "Is it open on Mondays?"), 2):
            arguments = {
                "type": "function_call",
                "name": "look_up",
                "call_id": f"call_{number}",
                "arguments": json.dumps({"place": "Munch", "days": ["mon", "tue"], "limit": 10}),
            }
            output = {
                "type": "function_call_output",
                "call_id": f"call_{number}",
                "output": json.dumps({"open": True, "hours": {"mon": "10-17"}}),
            }
            path = path.append([user_message(question)])
            length = len(path)
            path = path.append([arguments, output, assistant_message(f"{question[:-1]}: yes. " * 60)])
            links.append(
                self.link(
                    f"resp_oslo{number}",
                    path,
                    length,
                    7200 - 60 * number,
                    parent_id=links[-1].id,
                    parameters=parameters,
                    session_id="ses_oslo",
                )
            )
        appends.append(AppendItems(self.root, path.items))
        for name, question, age_s in (("cheap", "Make it cheaper.", 3000), ("north", "And in Tromsø?", 900)):
            fork = start.append([user_message(question), assistant_message("Leave the concert out.\n\nTake the tram.")])
            appends.append(AppendItems(start.head, fork.items[2:]))
            links.append(
                self.link(
                    f"resp_{name}",
                    fork,
                    3,
                    age_s,
                    parent_id="resp_oslo1",
                    parameters={"temperature": 0.2},
                    model=MODELS[1],
                )
            )
        record = session(
            id="ses_oslo",
            name="oslo",
            head=path.head,
            confirmed_head=path.head,
            link_id="resp_oslo4",
            used_at=self.now,
            strategy=Strategy.CHAIN,
            handle="resp_oslo4",
            model=MODELS[0],
        )
        self.commit(*appends, links=tuple(links), session=record)

    def write_other_requests(self) -> None:
        for number in range(70):
            question = QUESTIONS[number % len(QUESTIONS)]
            path = ItemPath(self.root).append([user_message(f"{question} ({number})"), assistant_message("Done.")])
            fields: dict[str, Any] = {"model": MODELS[number % 4]}
            if number % 11 == 5:
                error = {"code": "rate_limit_exceeded", "message": "Rate limit reached for requests per minute."}
                fields |= {"status": "failed", "usage": None, "error": error}
            elif number % 17 == 3:
                fields |= {"status": "incomplete"}
            name = f"resp_{self.rng.getrandbits(128):032x}"
            new_link = self.link(name, path, 1, 40 + number * 3700, **fields)
            self.commit(AppendItems(self.root, path.items), links=(new_link,))

    def write_agent_run(self) -> None:
        """Write a finished agent run with two agents, tool calls and a handoff."""
        calls: list[Item] = [
            {"type": "function_call", "name": "look_up", "call_id": "c1", "arguments": '{"order": "A1"}'},
            {"type": "function_call_output", "call_id": "c1", "output": '{"paid": 500, "twice": true}'},
            {"type": "function_call", "name": "transfer_to_billing", "call_id": "c2", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c2", "output": "billing"},
            {"type": "function_call", "name": "refund", "call_id": "c3", "arguments": '{"order": "A1", "cents": 500}'},
            {"type": "function_call_output", "call_id": "c3", "output": "paid 500 cents back"},
        ]
        path = ItemPath(self.root).append(
            [user_message(QUESTIONS[5]), *calls, assistant_message("500 cents are back.")]
        )
        more = {"session_id": "ses_refund", "strategy": Strategy.SESSION, "status": "completed"}
        links = tuple(
            self.link(
                f"resp_refund{number}",
                path.first(end),
                begin,
                600 - 3 * number,
                duration_s=1.5,
                parent_id=f"resp_refund{number - 1}" if number else None,
                **more,
            )
            for number, (begin, end) in enumerate(((1, 2), (3, 4), (5, 6), (7, 8)))
        )
        record = session(
            id="ses_refund",
            name="refunds",
            head=path.head,
            confirmed_head=path.head,
            link_id="resp_refund3",
            used_at=self.now,
            model=MODELS[0],
        )
        document = {"agent": "billing", "turn": 4, "used": {"triage": ["look_up"], "billing": ["refund"]}}
        run = AgentRun("run_refund", "ses_refund", 1, "done", document, self.now - 600, self.now - 588)
        self.commit(AppendItems(self.root, path.items), links=links, session=record, agent_run=run)
        logged = (
            AgentCall("run_refund", "1/c1", self.now - 598, has_ended=True, output="ok"),
            AgentCall("run_refund", "3/c3", self.now - 592, has_ended=True, output="paid"),
        )
        self.commit(agent_calls=logged)

    def write_paused_run(self) -> None:
        run = paused(call("c9", "guarded", json.dumps({"text": "Refund 129.00 EUR for order B7: charged twice"})))
        row = AgentRun("run_paused", "ses_paused", 1, "paused", run_to_json(run), self.now - 90, self.now - 80)
        self.commit(session=session(id="ses_paused", name="refund B7", used_at=self.now), agent_run=row)

    def write_unstored_requests(self) -> None:
        """Write rows of requests that left no response."""
        codex, chat = "codex 0.171.0", "chat_completions"
        refused, limited = "model_not_found", "rate_limit_exceeded"
        rows = (
            UnstoredRequest(
                "req_1", self.now - 20, chat, MODELS[1], "failed", limited, codex, 8.2, None, 5120, 900, count=12
            ),
            UnstoredRequest(
                "req_2", self.now - 25, "responses", "nope/x", "failed", refused, codex, 0.01, None, 812, 240
            ),
            UnstoredRequest(
                "req_3",
                self.now - 30,
                "responses",
                MODELS[0],
                "completed",
                None,
                codex,
                4,
                0.6,
                91_000,
                8_200,
                21_000,
                18_000,
                412,
            ),
            UnstoredRequest("req_4", self.now - 35, "messages", MODELS[2], "cancelled", None, "claude-code 2.1.330", 2),
        )
        self.gateway.run(self.gateway.store.add_unstored_requests(rows, DEFAULT_RETENTION))


def open_runs(page: Page) -> None:
    page.locator("#runs > summary").click()
    page.locator(".timeline > li").first.wait_for()


def open_approval(page: Page) -> None:
    page.get_by_role("button", name="Approve guarded (").first.click()
    page.get_by_role("dialog").locator("pre").wait_for()


def open_approvals(page: Page) -> None:
    page.get_by_role("button", name="Approvals (").click()
    page.locator(".decisions h3").first.wait_for()


def open_filters(page: Page) -> None:
    button = page.locator("#filters-toggle")
    if button.is_visible():
        button.click()


def show_keys(page: Page) -> None:
    page.keyboard.press("?")


def focus_row(page: Page) -> None:
    page.keyboard.press("j")
    page.keyboard.press("j")


def nothing(page: Page) -> None:
    """Leave the page as it is."""


TABS = ("conversation", "request", "seen", "response", "diff", "raw")
SCREENS: dict[str, tuple[str, str, Callable[[Page], None]]] = {
    "home": ("", "tbody tr", nothing),
    "home-focus": ("", "tbody tr", focus_row),
    "home-filtered": (f"?status=failed&model={quote(MODELS[1])}", "#request-rows", open_filters),
    "home-nothing": ("?q=nowhere", "#request-rows p", nothing),
    **{f"pane-{tab}": (f"?request=resp_oslo3&tab={tab}", "#tab-panel", nothing) for tab in TABS},
    "pane-unstored": ("?request=req_1", "#detail-unstored", nothing),
    "conversation": ("#/oslo", ".bars", nothing),
    "conversation-request": ("#/oslo/resp_oslo3", "#link-title", nothing),
    "conversations": ("#conversations", "tbody tr", nothing),
    "charts": ("?charts=open", "#charts-total", nothing),
    "approvals": ("", ".paused button", open_approval),
    "approvals-all": ("", ".paused button", open_approvals),
    "compare": ("#compare/resp_oslo4/resp_cheap", "#compare-start", nothing),
    "compare-form": ("#compare", "#compare-a", nothing),
    "run": ("#/refunds", "#runs", open_runs),
    "keys": ("", "tbody tr", show_keys),
}
"""By name: the address after the root, an element to wait for, and the steps that follow."""


def take_screen(page: Page, folder: Path, name: str, width: int) -> None:
    page.wait_for_timeout(400)  # Markdown, charts and ages arrive after the first drawing
    height = min(MAX_HEIGHT, max(800, int(page.evaluate("document.documentElement.scrollHeight"))))
    overflow = int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
    page.set_viewport_size({"width": width, "height": height})
    page.screenshot(path=str(folder / f"{name}.png"))
    print(f"{name:<40}{height:>6} px high{f', {overflow} px too wide' if overflow else ''}")


def screens_to_take(names: list[str]) -> Iterator[str]:
    yield from (name for name in ("empty", *SCREENS) if not names or name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description="Take screenshots of the inspector page.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--widths", type=int, nargs="*", default=WIDTHS)
    parser.add_argument("--schemes", nargs="*", choices=SCHEMES, default=SCHEMES)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        keys = Path(temporary) / "keys"
        key = create_api_key(keys, "local")
        with (
            run_gateway(Path(temporary) / "empty") as empty,
            run_gateway(Path(temporary) / "full", keys=KeysFile(keys)) as full,
        ):
            PageStore(full).write()
            with chromium() as browser:
                for scheme in options.schemes:
                    for width in options.widths:
                        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
                        context.add_init_script(f"sessionStorage.setItem('convo key', {json.dumps(key)})")
                        for name in screens_to_take(options.names):
                            address, element, steps = SCREENS.get(name, ("", "#main h3", nothing))
                            page = context.new_page()
                            page.set_viewport_size({"width": width, "height": 800})
                            page.goto(f"{(empty if name == 'empty' else full).root}/{address}")
                            page.locator(element).first.wait_for(state="attached")
                            steps(page)
                            take_screen(page, options.folder, f"{name}-{width}-{scheme}", width)
                            page.close()
                        context.close()


if __name__ == "__main__":
    main()
