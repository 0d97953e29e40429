"""Scripted conversations and agent runs, with their printed and stored data."""

import json
import signal
from pathlib import Path
from typing import Any

from tests.surface.commands import RevisionShell
from tests.surface.document import Collection, loads
from tests.surface.http_api import scripted_settings, served_revision, write_settings
from tests.surface.stored import collect_sqlite

OWNERS = ("replay", "session", "conversation", "chain")

REMOTE = """
[providers.up]
api = "responses"
base_url = "{url}/v1"
key_env = "UP_KEY"
"""

AGENTS = """
from convo.agents import Agent
from convo.tools import tool

@tool(needs_approval=True)
def refund(order: str, cents: int) -> str:
    "Pay an order back."
    return "paid"

@tool
def look_up(order: str) -> str:
    "Find an order."
    return "found"

desk = Agent("desk", instructions="Help.", tools=(refund, look_up))
billing = Agent("billing", instructions="Pay back.", tools=(refund,))
triage = Agent("triage", instructions="Send on.", handoffs=(billing,))
"""

NESTED = """
from bot import desk, refund
from convo.agents import Agent, Guardrail, agent_tool

def fine(context, items):
    return None

clerk = Agent("clerk", model={clerk!r}, tools=(refund,))
boss = Agent(
    "boss",
    model={boss!r},
    tools=(agent_tool(clerk, "ask_clerk", "Ask."),),
    input_guardrails=(Guardrail("fine", fine, parallel=False),),
)
"""

REFUND = {"call": {"name": "refund", "call_id": "c1", "arguments": {"order": "A1", "cents": 500}}}
LOOKUP_CALL = {"call": {"name": "look_up", "call_id": "c0", "arguments": {"order": "A1"}}}
HANDOFF = {"call": {"name": "transfer_to_billing", "call_id": "h0"}}
CALL_CLERK = {"call": {"name": "ask_clerk", "call_id": "a1", "arguments": {"input": "Pay."}}}
TWO = {
    "output": [
        {"type": "function_call", "call_id": f"c{at}", "name": "refund", "arguments": '{"order": "A1", "cents": 1}'}
        for at in (1, 2)
    ]
}
DONE = {"text": "Done"}

LABELS = [f"1.{minor}" for minor in range(26)]
"""Candidate schema versions of RunState; only some of them exist."""

KEY = {"CONVO_SIGNING_KEY": "a-signing-key-that-is-long-enough"}

LONG = "and this continues for a while; " * 20
"""A text that is long enough for compaction."""

BROKEN = [
    {"type": "message", "role": "user", "content": "one"},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{"},
    {"type": "function_call_output", "call_id": "c2", "output": "x"},
    {"type": "reasoning", "id": "rs_1"},
]


class Recorder:
    """Runs commands, and adds their exit codes and their JSON output to a collection."""

    def __init__(self, collection: Collection, shell: RevisionShell) -> None:
        self._collection, self._shell = collection, shell

    def run(self, name: str, *argv: str, **env: str) -> None:
        """Run a command and add its exit code and JSON output as `name`."""
        got = self._shell.run(*argv, env=env)
        self._collection.add_value("exit codes", name, got.returncode)
        document = loads(got.stdout)
        if isinstance(document, dict | list):
            self._collection.add_document("printed JSON", name, document)
        else:
            for line in got.stdout.splitlines():
                if isinstance(one := loads(line), dict):
                    self._collection.add_document("printed JSON", name, one)

    def add_file(self, name: str, file: Path) -> None:
        """Add a file that a command wrote."""
        document = loads(file.read_text(encoding="utf-8")) if file.exists() else None
        self._collection.add_document("files", name, document)

    def interrupt(self, name: str, *argv: str) -> None:
        """Start a command, and interrupt it after the first line of its output."""
        with self._shell.start(*argv) as process:
            assert process.stdout
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.communicate()
        self._collection.add_value("exit codes", name, process.returncode)

    def script(self, *replies: dict[str, Any], delay_s: float = 0.0) -> str:
        """The name of a scripted model with these replies."""
        folder = self._shell.folder / "scripts"
        folder.mkdir(exist_ok=True)
        file = folder / f"{len(list(folder.iterdir()))}.json"
        file.write_text(json.dumps({"replies": replies, "delay_s": delay_s}), encoding="utf-8")
        return f"scripted/{file}"


def collect_sessions(collection: Collection, shell: RevisionShell) -> None:
    """Collect conversations of each owner, with the embedded endpoint and a remote one, and all commands for them."""
    file = write_settings(shell.folder, "front.toml", scripted_settings(shell.folder))
    with served_revision(shell._replace(home=shell.folder / "front", before=("--config", str(file)))) as url:
        own = write_settings(shell.folder, "own.toml", scripted_settings(shell.folder) + REMOTE.format(url=url))
        recorder = Recorder(collection, shell._replace(before=("--config", str(own))))
        for owner in OWNERS:
            for name, model in (("here", "plain"), ("remote", "up/plain")):
                run_conversation(recorder, owner, name, model)
        run_reading_commands(recorder)
        run_converting_commands(recorder)
    run_refused_commands(recorder)
    collect_files(collection, "sessions", shell)
    collect_sqlite(collection, "sessions", shell.home)
    run_store_commands(recorder)


def run_conversation(recorder: Recorder, owner: str, where: str, model: str) -> None:
    """Run two turns and the commands that show them."""
    name, env = f"{owner}-{where}", {"UP_KEY": "key"}
    recorder.run(f"chat {name}", "chat", f"--{owner}", "-n", name, "-m", model, "--json", "one", **env)
    recorder.run(f"chat {name} again", "chat", "--from", name, "--jsonl", "-s", "Short", "two", **env)
    recorder.run(f"next {owner}", "next", name, "three", "--json", **env)
    recorder.run(f"inspect {owner}", "inspect", name, "--json", **env)


def run_reading_commands(recorder: Recorder) -> None:
    """Run single turns, and the commands that read conversations, models and settings."""
    env = {"UP_KEY": "key"}
    for model in ("thinking", "refusing", "breaking", "refused", "sealed", "nobody"):
        recorder.run(f"chat {model}", "chat", "--session", "-n", f"of-{model}", "-m", model, "--json", "one")
        recorder.run(f"chat {model} events", "chat", "--session", "-m", model, "--jsonl", "one")
    recorder.run(
        "chat with a file", "chat", "--session", "-n", "attached", "-m", "plain", "-a", "front.toml", "-q", "one"
    )
    recorder.run("chat fork", "chat", "--fork", "session-here@1", "-n", "forked", "-m", "plain", "--json", "two")
    recorder.run("sessions", "sessions", "--json")
    recorder.run("sessions show", "sessions", "show", "session-here", "--json")
    recorder.run("sessions search", "sessions", "search", "Hello", "--json")
    recorder.run("diff", "diff", "session-here", "forked", "--json")
    recorder.run("diff wire", "diff", "--wire", "session-here@1", "session-here@2", "--json")
    recorder.run("diff server", "diff", "--server", "conversation-remote", "--json", **env)
    recorder.run("lint", "lint", "session-here", "--json")
    recorder.run("models", "models", "--json")
    recorder.run("doctor", "doctor", "settings", "store", "serve", "--json")
    for form in ("replay", "jsonl", "markdown", "html"):
        recorder.run(f"export {form}", "export", "session-here", "--format", form, "-o", f"out.{form}", "--json")
    recorder.add_file("export replay", Path("out.replay"))
    recorder.run("export jsonl lines", "export", "session-here", "--format", "jsonl", "--links")


def run_converting_commands(recorder: Recorder) -> None:
    """Run the commands that create or replace a conversation."""
    env = {"UP_KEY": "key"}
    for owner in OWNERS:
        name = f"to-{owner}.json" if owner == "replay" else f"to-{owner}"
        handle = "chain-here" if owner == "session" else "session-here"
        recorder.run(f"convert {owner}", "convert", handle, "--to", owner, "--as", name, "--json", **env)
    model = recorder.script({"text": "Short"}, {"text": LONG})
    recorder.run("chat long", "chat", "-q", "-n", "long", "-m", model, f"one {LONG}")
    recorder.run("chat long again", "chat", "-q", "--from", "long", "-m", model, f"two {LONG}")
    recorder.run("compact preview", "compact", "long", "--preview", "--json")
    recorder.run("compact", "compact", "long", "--keep-last", "1", "--json")
    recorder.run("race", "race", "one", "two", "-m", "plain", "--json")
    recorder.run("race events", "race", "one", "-m", "plain", "--jsonl")
    Path("broken.json").write_text(json.dumps(BROKEN), encoding="utf-8")
    recorder.run("lint broken", "lint", "./broken.json", "--json")
    recorder.run("lint sarif", "lint", "./broken.json", "--format", "sarif")
    recorder.run("repair", "repair", "./broken.json", "--as", "mended", "--json")
    recorder.run("import", "import", "out.jsonl", "--as", "imported", "--json")
    recorder.run("import again", "import", "out.jsonl", "--json")
    recorder.run("rename", "sessions", "rename", "imported", "renamed")
    recorder.run("rm", "sessions", "rm", "renamed", "--yes")


def run_refused_commands(recorder: Recorder) -> None:
    """Run commands that fail."""
    recorder.run("unknown session", "inspect", "nobody", "--json")
    recorder.run("unknown command", "zzz")
    recorder.run("unknown option", "chat", "--zzz")
    recorder.run("two owners", "chat", "--session", "--chain", "--json", "one")
    recorder.run("unknown model", "chat", "-m", "zzz", "--json", "one")
    recorder.run("unknown file", "import", "nowhere.json", "--json")
    recorder.run("unreachable", "chat", "--chain", "-m", "up/plain", "--json", "one", UP_KEY="key")
    recorder.run("no key", "chat", "--chain", "-m", "openai/gpt-5", "--json", "one")
    recorder.run("no store", "sessions", "--json", CONVO_STORE="sqlite:own.toml")
    recorder.run("wrong settings", "sessions", "--json", CONVO_STORE="zzz:")
    recorder.interrupt(
        "interrupted", "chat", "-m", recorder.script({"text": "word " * 400}, delay_s=0.1), "--jsonl", "one"
    )
    recorder.run("no state", "resume", "nowhere.json", "--approve", "all", "--json")


def run_store_commands(recorder: Recorder) -> None:
    """Run the commands for the database."""
    recorder.run("store stats", "store", "stats", "--json")
    recorder.run("store check", "store", "check", "--json")
    recorder.run("store backup", "store", "backup", "copy.db", "--json")
    recorder.run("store recover", "store", "recover", "recovered.db", "--json")
    recorder.run("store migrate", "store", "migrate", "--json", CONVO_STORE="sqlite:new.db")
    recorder.run("store prune", "store", "prune", "--older-than", "1d", "--json")
    recorder.run("store removed", "store", "prune", "--older-than", "1s", "--yes", "--json")


def collect_files(collection: Collection, name: str, shell: RevisionShell) -> None:
    """Collect the paths and modes of all files in `CONVO_HOME`, and the content of JSON files and keys."""
    for file in sorted(shell.home.rglob("*")):
        path = collection.masks.masked(str(file.relative_to(shell.home)))
        if file.is_file() and not path.endswith(("-wal", "-shm")):
            collection.add_value("files", f"CONVO_HOME {path}", f"mode {file.stat().st_mode & 0o777:o}")
            if file.suffix == ".json":
                collection.add_document("files", f"{name} {path}", loads(file.read_text(encoding="utf-8")))
            elif file.suffix == ".key":
                text = file.read_text(encoding="utf-8").strip()
                collection.add_value("formats", path, collection.masks.pattern(path, text))


def collect_runs(collection: Collection, shell: RevisionShell) -> None:
    """Collect agent runs that pause and resume after decisions, with each owner, and their states in all versions."""
    recorder = Recorder(collection, shell)
    clerk, boss = recorder.script(REFUND, DONE), recorder.script(CALL_CLERK, DONE)
    Path("bot.py").write_text(AGENTS, encoding="utf-8")
    Path("nested.py").write_text(NESTED.format(clerk=clerk, boss=boss), encoding="utf-8")
    for owner in OWNERS:
        model = recorder.script(LOOKUP_CALL, TWO if owner == "session" else REFUND, DONE)
        arguments = ("chat", f"--{owner}", "-n", owner, "--agent", "bot.py:desk", "-m", model)
        recorder.run(f"run {owner}", *arguments, "--state", f"state-{owner}.json", "--jsonl", "one")
        recorder.add_file("state", Path(f"state-{owner}.json"))
    model = recorder.script(HANDOFF, REFUND, DONE)
    recorder.run("run handoff", "chat", "-n", "over", "--agent", "bot.py:triage", "-m", model, "--json", "one")
    recorder.run("run nested", "chat", "-n", "boss", "--agent", "nested.py:boss", "--jsonl", "one")
    recorder.run("approvals", "approvals", "--json")
    recorder.run("approvals show", "approvals", "show", "c2", "--json")
    recorder.run("inspect state", "inspect", "./state-session.json", "--json")
    collect_files(collection, "paused", shell)
    collect_sqlite(collection, "paused runs", shell.home)
    decide_on_states(recorder)
    collect_sqlite(collection, "decided runs", shell.home)
    for owner in OWNERS:
        recorder.run(f"resume {owner}", "resume", owner, "--agent", "bot.py:desk", "--approve", "all", "--jsonl")
    recorder.run(
        "resume handoff", "resume", "over", "--agent", "bot.py:triage", "--reject", "c1=no", "--always", "--json"
    )
    recorder.run("resume nested", "resume", "boss", "--agent", "nested.py:boss", "--approve", "all", "--json")
    recorder.run("resume ended", "resume", "session", "--approve", "all", "--json")
    recorder.run("inspect run", "inspect", "session", "--json")
    collect_sqlite(collection, "ended runs", shell.home)


def decide_on_states(recorder: Recorder) -> None:
    """Decide pending calls of states in files and in the store."""
    arguments = ("resume", "state-session.json", "--decide-only", "-o")
    for label in LABELS:
        recorder.run(f"state as {label}", *arguments, "-", "--approve", "c1", "--reject", "c2=no", "--schema", label)
    recorder.run("state signed", *arguments, "signed.json", "--approve", "all", "--sign", **KEY)
    recorder.add_file("signed state", Path("signed.json"))
    recorder.run("state verified", "resume", "signed.json", "--decide-only", "-o", "-", "--verify", **KEY)
    recorder.run(
        "state not verified",
        "resume",
        "state-session.json",
        "--decide-only",
        "-o",
        "not.json",
        "--verify",
        "--json",
        **KEY,
    )
    recorder.run("state always", *arguments, "-", "--approve", "refund", "--always")
    recorder.run("export runstate", "export", "session", "--format", "runstate", "--agent", "bot.py:desk")
    recorder.run("approvals approve", "approvals", "approve", "c1", "--run", "session", "--json")
    recorder.run("approvals reject", "approvals", "reject", "c2=no", "--run", "session", "--json")
    recorder.run("approvals unknown", "approvals", "approve", "zzz", "--json")
