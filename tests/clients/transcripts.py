"""Make transcripts with the real Codex and Claude Code, on a scripted vendor.

    python -m tests.clients.transcripts tests/transfer/transcripts.tar.xz

Both programs must be on the PATH. The folder in which they run is written as /home/dev.
"""

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from platform import release
from typing import Any
from uuid import uuid4

from starlette.types import Receive, Scope, Send

from tests.asgi_server import listen_on_free_port, serve_in_thread
from tests.clients.clients import CLAUDE_ENVIRON, make_folder
from tests.clients.scripted_task import send_events, send_json
from tests.models import messages_events
from tests.models.chat_server import send_head, send_piece

HOME = "/home/dev"
CODEX_MODEL, NEW_CODEX_MODEL, CLAUDE_MODEL = "gpt-5.5", "gpt-5.6-sol", "claude-opus-5"
"""Codex sends its instructions and tools to the newer model as items."""

Block = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the vendor.

    output:  items of the Responses API, or blocks of the Messages API
    counts:  the token counts that differ from the usual ones
    status:  HTTP status of an answer that is an error
    is_cut:  the answer stops at the end of its output, and the program is interrupted
    """

    output: Sequence[Block] = ()
    counts: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    is_cut: bool = False


@dataclass
class ScriptedVendor:
    """The vendor of both programs, an ASGI application; each request of a turn gets the next answer."""

    answers: list[Answer] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        path, request = scope["path"].removeprefix("/v1"), json.loads(body or b"{}")
        if path == "/responses" and scope["method"] == "GET":  # a WebSocket; Codex then uses HTTP
            await send_json(send, {}, 426)
            return
        if path == "/responses":
            build_events = response_events
        elif path == "/messages" and request.get("tools"):
            build_events = message_events
        elif path == "/messages":  # a title
            await send_events(send, b"".join(message_events(Answer([{"type": "text", "text": "{}"}]))))
            return
        else:
            await send_json(send, {"error": {"message": f"{path} is not scripted"}}, 404)
            return
        self.requests.append(request)
        # A program may repeat a request that failed.
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.status != 200:
            error = {"type": "invalid_request_error", "message": "the script refuses this request"}
            await send_json(send, {"type": "error", "error": error}, answer.status)
        elif answer.is_cut:
            await send_head(send, 200, "text/event-stream")
            *events, _ = build_events(answer)
            await send_piece(send, b"".join(events))
            await receive()  # until the client leaves
        else:
            await send_events(send, b"".join(build_events(answer)))


# -- answers --------------------------------------------------------------------------------------


def response_usage(answer: Answer) -> dict[str, Any]:
    counts = {"input": 1000, "cached": 800, "output": 50, "reasoning": 0, **answer.counts}
    return {
        "input_tokens": counts["input"],
        "input_tokens_details": {"cached_tokens": counts["cached"]},
        "output_tokens": counts["output"],
        "output_tokens_details": {"reasoning_tokens": counts["reasoning"]},
        "total_tokens": counts["input"] + counts["output"],
    }


def response_events(answer: Answer) -> list[bytes]:
    body = {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": 1,
        "model": CODEX_MODEL,
        "status": "in_progress",
    }
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**body, "output": []}}]
    for index, item in enumerate(answer.output):
        events += [
            {"type": "response.output_item.added", "output_index": index, "item": {**item, "status": "in_progress"}},
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]
    whole = {**body, "status": "completed", "output": answer.output, "usage": response_usage(answer)}
    return [*map(messages_events.sse, events), messages_events.sse({"type": "response.completed", "response": whole})]


def message_events(answer: Answer) -> list[bytes]:
    blocks = [event for index, block in enumerate(answer.output) for event in block_events(index, block)]
    start = messages_events.start(CLAUDE_MODEL, cache_creation_input_tokens=0, **answer.counts)
    is_call = any(block["type"] == "tool_use" for block in answer.output)
    end = [] if answer.is_cut else messages_events.stop("tool_use" if is_call else "end_turn", output_tokens=50)
    return [start.replace(b"msg_01", f"msg_{uuid4().hex}".encode()), *blocks, *end]


def block_events(index: int, block: Block) -> list[bytes]:
    match block["type"]:
        case "thinking":
            return messages_events.thinking(index, block["thinking"], signature=block["signature"])
        case "tool_use":
            return messages_events.tool(index, block["id"], block["name"], json.dumps(block["input"]))
    return messages_events.text(index, block["text"])


def message(text: str) -> Block:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "type": "message",
        "id": f"msg_{uuid4().hex}",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


def reasoning(number: int, summary: str) -> Block:
    encrypted = base64.b64encode(f"sealed reasoning {number}".encode()).decode()
    parts = [{"type": "summary_text", "text": summary}]
    return {"type": "reasoning", "id": f"rs_{number}", "summary": parts, "encrypted_content": encrypted}


def call(number: int, name: str, **arguments: Any) -> Block:
    fields = {"call_id": f"call_{number}", "name": name, "arguments": json.dumps(arguments), "status": "completed"}
    return {"type": "function_call", "id": f"fc_{number}", **fields}


def custom_call(number: int, name: str, text: str) -> Block:
    fields = {"call_id": f"call_{number}", "name": name, "input": text, "status": "completed"}
    return {"type": "custom_tool_call", "id": f"ctc_{number}", **fields}


COMPACTION: Block = {"type": "compaction", "id": "cmp_1", "encrypted_content": "c2VhbGVkIHN1bW1hcnk="}


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def thinking(number: int, words: str) -> Block:
    signature = base64.b64encode(f"signature {number}".encode()).decode()
    return {"type": "thinking", "thinking": words, "signature": signature}


def tool_use(number: int, name: str, **arguments: Any) -> Block:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}


# -- the programs ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of a program.

    arguments:     "SESSION" stands for the id of the session, "MESSAGE" for that of its first answer
    answers:       to its requests
    interrupt_at:  of a turn whose last answer is cut: the program is interrupted once it has printed or stored this
    """

    arguments: Sequence[str]
    answers: Sequence[Answer]
    interrupt_at: str = ""


PATCH = "*** Begin Patch\n*** Add File: made.txt\n+done\n*** End Patch\n"

CODEX: Mapping[str, Sequence[Turn]] = {
    "codex-plain": [
        Turn(["Say a number."], [Answer([reasoning(1, "Any number."), message("Twelve.")])]),
        Turn(["resume", "SESSION", "Another one."], [Answer([message("Thirteen.")], {"input": 1100, "cached": 1000})]),
    ],
    "codex-tools": [
        Turn(
            ["Read the notes."],
            [
                Answer(
                    [
                        reasoning(1, "Two commands."),
                        call(1, "exec_command", cmd="cat notes.txt"),
                        call(2, "exec_command", cmd="expr 4400 + 17"),
                    ]
                ),
                Answer([reasoning(2, "Write a file."), custom_call(3, "apply_patch", PATCH)], {"reasoning": 20}),
                Answer([call(4, "view_image", path=f"{HOME}/work/dot.png")]),
                Answer([message("The password is zebra.")]),
            ],
        )
    ],
    "codex-compacted": [
        Turn(["Say a number."], [Answer([message("Twelve.")], {"input": 150_000})]),
        Turn(
            ["resume", "SESSION", "Another one."],
            [Answer([COMPACTION], {"output": 400}), Answer([message("Thirteen.")])],
        ),
    ],
    "codex-interrupted": [
        Turn(["Say a number."], [Answer([reasoning(1, "Any."), message("Twelve.")])]),
        Turn(["resume", "SESSION", "Count to a thousand."], [Answer([reasoning(2, "Long.")], is_cut=True)], "rs_2"),
        Turn(["resume", "SESSION", "Count to two."], [Answer([message("One, two.")])]),
    ],
    "codex-error": [
        Turn(["Say a number."], [Answer(status=400)]),
        Turn(["resume", "SESSION", "-i", "dot.png", "What is in the picture?"], [Answer([message("A dot.")])]),
    ],
}

CLAUDE: Mapping[str, Sequence[Turn]] = {
    "claude-plain": [
        Turn(["Say a number."], [Answer([thinking(1, "Any number."), text("Twelve.")])]),
        Turn(["--resume", "SESSION", "Another one."], [Answer([text("Thirteen.")], {"cache_read_input_tokens": 900})]),
    ],
    "claude-tools": [
        Turn(
            ["Read the notes."],
            [
                Answer(
                    [
                        thinking(1, "Two commands."),
                        text("I read them."),
                        tool_use(1, "Bash", command="cat notes.txt"),
                        tool_use(2, "Bash", command="expr 4400 + 17"),
                    ]
                ),
                Answer([thinking(2, "The picture."), tool_use(3, "Read", file_path=f"{HOME}/work/dot.png")]),
                Answer([tool_use(4, "Bash", command="exit 3")]),
                Answer([text("The password is zebra.")]),
            ],
        )
    ],
    "claude-compacted": [
        Turn(["Say a number."], [Answer([thinking(1, "Any."), text("Twelve.")])]),
        Turn(["--resume", "SESSION", "/compact"], [Answer([text("<summary>Twelve was said.</summary>")])]),
        Turn(["--resume", "SESSION", "Another one."], [Answer([text("Thirteen.")])]),
    ],
    "claude-autocompacted": [
        Turn(["Say a number."], [Answer([text("Twelve.")])]),
        Turn(
            ["--resume", "SESSION", "Read the notes."],
            [
                Answer([tool_use(1, "Bash", command="cat notes.txt")]),
                Answer([tool_use(2, "Bash", command="expr 4400 + 17")], {"input_tokens": 190_000}),
                Answer([text("<summary>Twelve was said.</summary>")]),
                Answer([text("The password is zebra.")]),
            ],
        ),
    ],
    "claude-edited": [
        Turn(["Say a number."], [Answer([text("Twelve.")])]),
        Turn(["--resume", "SESSION", "Another one."], [Answer([text("Thirteen.")])]),
        Turn(["--resume", "SESSION", "--resume-session-at", "MESSAGE", "A smaller one."], [Answer([text("Two.")])]),
    ],
    "claude-interrupted": [
        Turn(["Say a number."], [Answer([thinking(1, "Any."), text("Twelve.")])]),
        Turn(["--resume", "SESSION", "Count to a thousand."], [Answer([text("One, two")], is_cut=True)], "One, two"),
        Turn(["--resume", "SESSION", "What went wrong?"], [Answer(status=400)]),
        Turn(["--resume", "SESSION", "Count to two."], [Answer([text("One, two.")])]),
    ],
}

TURNS = {**CODEX, **CLAUDE}

CODEX_SETTINGS = """
model = "{model}"
openai_base_url = "{url}"
model_auto_compact_token_limit = 100000
model_instructions_file = "{instructions}"
check_for_update_on_startup = false
[analytics]
enabled = false
[skills]
include_instructions = false
"""


def codex_command(folder: Path, url: str, model: str, turn: Turn, session: str) -> tuple[list[str], Mapping[str, str]]:
    home, instructions = folder / "home", folder / "home" / "instructions.md"
    instructions.write_text("You are a coding agent.\n", encoding="utf-8")
    settings = CODEX_SETTINGS.format(model=model, url=url, instructions=instructions)
    (home / "config.toml").write_text(settings, encoding="utf-8")
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    environ = {"CODEX_HOME": str(home), "OPENAI_API_KEY": "KEY"}
    arguments = [session if one == "SESSION" else one for one in turn.arguments]
    at = arguments.index("resume") + 1 if "resume" in arguments else 0
    return ["codex", "exec", *arguments[:at], *flags, *arguments[at:]], environ


def claude_command(url: str, turn: Turn, session: str, message_id: str) -> tuple[list[str], Mapping[str, str]]:
    environ = {name: value.replace("ADDRESS", url.removesuffix("/v1")) for name, value in CLAUDE_ENVIRON.items()}
    names = {"SESSION": session, "MESSAGE": message_id}
    arguments = [names.get(one, one) for one in turn.arguments]
    flags = ["--model", CLAUDE_MODEL, "--dangerously-skip-permissions", "--tools", "Bash,Read"]
    flags += ["--autocompact", "100000"]
    flags += ["--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    flags += ["--system-prompt", "You are a coding agent."]
    if "/compact" not in arguments:
        flags.append("--disable-slash-commands")  # without the texts of all skills
    return ["claude", *flags, "-p", *arguments], {**environ, "IS_SANDBOX": "1", "MAX_THINKING_TOKENS": "2000"}


def find_transcripts(folder: Path) -> list[Path]:
    return [*folder.glob("home/sessions/**/*.jsonl"), *folder.glob("home/.claude/projects/*/*.jsonl")]


def find_transcript(folder: Path) -> Path | None:
    return max(find_transcripts(folder), key=lambda file: file.stat().st_mtime, default=None)


def first_answer_id(file: Path) -> str:
    """The uuid of the first answer in a transcript of Claude Code."""
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return next(str(line["uuid"]) for line in lines if line["type"] == "assistant")


@contextmanager
def run_vendor() -> Iterator[tuple[ScriptedVendor, str]]:
    listener, url = listen_on_free_port()
    vendor = ScriptedVendor()
    with serve_in_thread(vendor, listener, asyncio.new_event_loop()):
        yield vendor, url


def make_transcript(name: str, folder: Path, vendor: ScriptedVendor, url: str) -> str:
    """Run the turns of one transcript in an empty folder, and return what the program wrote."""
    work = make_folder(folder)
    for turn in TURNS[name]:
        file = find_transcript(folder)
        session = file.stem[-36:] if file else ""
        if name in CODEX:
            model = NEW_CODEX_MODEL if name == "codex-plain" else CODEX_MODEL
            command, environ = codex_command(folder, url, model, turn, session)
        else:
            command, environ = claude_command(url, turn, session, first_answer_id(file) if file else "")
        place = [json.dumps(dict(item)).replace(HOME, str(folder)) for answer in turn.answers for item in answer.output]
        outputs = iter(map(json.loads, place))
        vendor.answers[:] = [
            Answer([next(outputs) for _ in answer.output], answer.counts, answer.status, answer.is_cut)
            for answer in turn.answers
        ]
        run(command, work, {"HOME": str(folder / "home"), "DO_NOT_TRACK": "1", **environ}, vendor, turn)
    file = find_transcript(folder)
    assert file, f"{name}: no transcript"
    return replace_folder(file.read_text(encoding="utf-8"), folder)


def replace_folder(text: str, folder: Path) -> str:
    """Replace what names this machine in a transcript or request."""
    place = str(folder)
    # Claude Code names a project by its folder, with dashes.
    for name, neutral in (
        (f"{place}/work", f"{HOME}/project"), (place, HOME), (place.replace("/", "-"), HOME.replace("/", "-")),
        (release(), "6.1.0"),
    ):  # fmt: skip
        text = text.replace(name, neutral)
    return text


def run(command: list[str], work: Path, environ: Mapping[str, str], vendor: ScriptedVendor, turn: Turn) -> None:
    program = shutil.which(command[0])
    assert program, f"{command[0]} is missing"
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    output = work.parent / "output.txt"
    with output.open("w") as stdout, subprocess.Popen(
        [program, *command[1:]], cwd=work, env={**inherited, **environ}, stdin=subprocess.DEVNULL,
        stdout=stdout, stderr=subprocess.STDOUT, process_group=0,
    ) as process:  # fmt: skip
        if turn.interrupt_at:
            while not any(
                turn.interrupt_at in file.read_text("utf-8") for file in (output, *find_transcripts(work.parent))
            ):
                assert process.poll() is None
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=110)
    assert len(vendor.answers) == 1, output.read_text("utf-8")  # the last one is kept for requests that are repeated


def main(file: str) -> None:
    with run_vendor() as (vendor, url), tarfile.open(file, "w:xz") as archive:
        for name in TURNS:
            with tempfile.TemporaryDirectory() as folder:
                written = make_transcript(name, Path(folder), vendor, url).encode()
            member = tarfile.TarInfo(f"{name}.jsonl")
            member.size = len(written)
            archive.addfile(member, BytesIO(written))


if __name__ == "__main__":
    main(sys.argv[1])
