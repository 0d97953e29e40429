"""The table client x upstream: how each client is pointed at `convo serve`, and the outcome of each cell.

Every client gets the same task: five or more calls of tools, its own where it has some, in a folder with two files.
On the built-in model, which has no tools, the task is one answer. A cell without a row in `refused` works.
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients.scripted_task import Step
from tests.needs import NODE_MODULES

UPSTREAMS: Mapping[str, str] = {
    "chat": 'a provider with `api = "chat"`',
    "claude": 'a provider with `api = "anthropic"`',
    "native": 'a provider with `api = "responses"`',
    "built-in": "the built-in model: one answer without tools",
}

GATEWAY_SETTINGS = """\
[providers.chat]
api = "chat"
base_url = "{url}/v1"
[providers.claude]
api = "anthropic"
base_url = "{url}"
[providers.native]
api = "responses"
base_url = "{url}/v1"
[aliases]
"gpt-5.5-chat" = "chat/m"
"gpt-5.5-claude" = "claude/claude-opus-5"
"gpt-5.5-native" = "native/m"
"gpt-5.5-built-in" = "local"
"""
"""Settings of the gateway. Clients choose their tools by the model's name, so each alias begins with a known one."""

PROMPT = "Read notes.txt and do as it says."
NOTES = "The password is zebra.\n"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
MADE = "näive"
PATCH = f"*** Begin Patch\n*** Add File: made.txt\n+{MADE}\n*** End Patch\n"
COMMAND = "cat made.txt; expr 4400 + 17"

Process = subprocess.CompletedProcess[str]


@dataclass(frozen=True, slots=True)
class Client:
    """A client and its row of the table.

    package:     name and version, as npm or pip installs it
    api:         the API that it speaks with the gateway
    run:         runs the client in a folder: (folder, address of the gateway, model, whether with tools)
    steps:       the task for a folder
    setup:       how it is pointed at the gateway, for the page: the language of the block and its text
    refused:     a part of the error message, by upstream
    needs:       the part of `tests/needs.py` that must be present
    by_default:  the upstream whose cell is in the default test run
    """

    name: str
    package: str
    api: str
    run: Callable[[Path, str, str, bool], Process]
    steps: Callable[[Path], list[Step]]
    setup: tuple[str, str]
    needs: str
    refused: Mapping[str, str] = field(default_factory=dict)
    by_default: str = ""

    def models(self) -> Mapping[str, str]:
        """The model that the client asks for, by upstream."""
        return {upstream: f"gpt-5.5-{upstream}" for upstream in UPSTREAMS}


def make_folder(folder: Path) -> Path:
    """The folder of the task. A client's settings and history are in the folder `home` beside it."""
    work = folder / "work"
    work.mkdir()
    (folder / "home").mkdir()
    (work / "notes.txt").write_text(NOTES, encoding="utf-8")
    (work / "dot.png").write_bytes(PNG)
    return work


def execute(work: Path, command: list[str], environ: Mapping[str, str]) -> Process:
    program = shutil.which(command[0])
    assert program
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    home = {"HOME": str(work.parent / "home"), "DO_NOT_TRACK": "1"}
    return subprocess.run(
        [program, *command[1:]], cwd=work, env={**inherited, **home, **environ}, stdin=subprocess.DEVNULL,
        capture_output=True, encoding="utf-8", timeout=110, check=False,
    )  # fmt: skip


# -- command lines --------------------------------------------------------------------------------

CODEX_SETTINGS = """\
model = "MODEL"
model_provider = "convo"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.convo]
name = "convo"
base_url = "ADDRESS/v1"
wire_api = "responses"
"""


def run_codex(work: Path, address: str, model: str, has_tools: bool) -> Process:
    home = work.parent / "home"
    settings = CODEX_SETTINGS.replace("ADDRESS", address).replace("MODEL", model)
    (home / "config.toml").write_text(settings, encoding="utf-8")
    flags = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
    return execute(work, ["codex", "exec", *flags, PROMPT], {"CODEX_HOME": str(home)})


def codex_steps(work: Path) -> list[Step]:
    return [
        Step("create_goal", {"objective": "Find the password."}, "Find the password."),
        Step("exec_command", {"cmd": "cat notes.txt"}, "zebra"),
        Step("apply_patch", PATCH, "made.txt"),
        Step("view_image", {"path": str(work / "dot.png")}, ""),
        Step("exec_command", {"cmd": COMMAND}, "4417"),
        Step("update_goal", {"status": "complete"}, "complete"),
    ]


CLAUDE_ENVIRON = {
    "ANTHROPIC_BASE_URL": "ADDRESS",
    "ANTHROPIC_AUTH_TOKEN": "KEY",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
}


def run_claude_code(work: Path, address: str, model: str, has_tools: bool) -> Process:
    environ = {name: value.replace("ADDRESS", address) for name, value in CLAUDE_ENVIRON.items()}
    command = ["claude", "-p", PROMPT, "--model", model, "--dangerously-skip-permissions"]
    return execute(work, command, {**environ, "IS_SANDBOX": "1"})


def claude_code_steps(work: Path) -> list[Step]:
    made = str(work / "made.txt")
    return [
        Step("Bash", {"command": "grep -l zebra *.txt"}, "notes.txt"),
        Step("Read", {"file_path": str(work / "notes.txt")}, "zebra"),
        Step("Write", {"file_path": made, "content": "naive\n"}, "made.txt"),
        Step("Edit", {"file_path": made, "old_string": "naive", "new_string": MADE}, "made.txt"),
        Step("ToolSearch", {"query": "select:WebFetch", "max_results": 1}, ""),
        Step("Bash", {"command": COMMAND}, "4417"),
    ]


OPENCODE_SETTINGS = {
    "autoupdate": False,
    "share": "disabled",
    "provider": {
        "convo": {
            "npm": "@ai-sdk/openai",
            "options": {"baseURL": "ADDRESS/v1", "apiKey": "KEY"},
            "models": {"MODEL": {"name": "MODEL", "tool_call": True}},
        }
    },
}


def run_opencode(work: Path, address: str, model: str, has_tools: bool) -> Process:
    text = json.dumps({**OPENCODE_SETTINGS, "permission": "allow"})
    (work / "opencode.json").write_text(text.replace("ADDRESS", address).replace("MODEL", model), encoding="utf-8")
    environ = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return execute(work, ["opencode", "run", "-m", f"convo/{model}", PROMPT], environ)


def opencode_steps(work: Path) -> list[Step]:
    done = {"content": "Find the password.", "status": "completed", "priority": "high"}
    return [
        Step("bash", {"command": "grep -l zebra *.txt", "description": "Search"}, "notes.txt"),
        Step("read", {"filePath": str(work / "notes.txt")}, "zebra"),
        Step("apply_patch", {"patchText": PATCH}, "made.txt"),
        Step("bash", {"command": COMMAND, "description": "Add"}, "4417"),
        Step("todowrite", {"todos": [done]}, "Find the password."),
    ]


# -- libraries: scripts with the same five tools --------------------------------------------------

SCRIPTS = Path(__file__).parent


def library_steps(work: Path) -> list[Step]:
    return [
        Step("read_file", {"path": "notes.txt"}, "zebra"),
        Step("search_files", {"text": "zebra"}, "notes.txt"),
        Step("write_file", {"path": "made.txt", "text": f"{MADE}\n"}, "6 characters"),
        Step("run_command", {"command": COMMAND}, "4417"),
        Step("finish", {"answer": 4417}, "accepted 4417"),
    ]


def script_environ(address: str, model: str, has_tools: bool, api: str) -> dict[str, str]:
    return {"BASE_URL": f"{address}/v1", "MODEL": model, "TASK": "tools" if has_tools else "text", "API": api}


def node_runner(script: str) -> Callable[[Path, str, str, bool], Process]:
    def run(work: Path, address: str, model: str, has_tools: bool) -> Process:
        (work.parent / "node_modules").symlink_to(NODE_MODULES)
        for name in (script, "workspace.mjs"):
            shutil.copy(SCRIPTS / "node" / name, work.parent)
        return execute(work, ["node", f"../{script}"], script_environ(address, model, has_tools, "responses"))

    return run


def python_runner(script: str, api: str = "responses") -> Callable[[Path, str, str, bool], Process]:
    """Run a script in an environment of its own, with the packages that its head names.

    It has the user's home folder, where uv has its settings and its cache, and the certificates of the machine.
    """

    def run(work: Path, address: str, model: str, has_tools: bool) -> Process:
        names = [name for name in os.environ if name == "HOME" or name.startswith(("UV_", "SSL_CERT_"))]
        environ = {name: os.environ[name] for name in names}
        environ |= {"LLM_USER_PATH": str(work.parent / "llm"), "LANGSMITH_TRACING": "false"}
        command = ["uv", "run", "--quiet", "--script", str(SCRIPTS / "python" / script)]
        return execute(work, command, {**environ, **script_environ(address, model, has_tools, api)})

    return run


def script_line(script: str, start: str) -> str:
    """The line of a script that begins with `start`, with the names of the page."""
    folder = "node" if script.endswith(".mjs") else "python"
    text = (SCRIPTS / folder / script).read_text(encoding="utf-8")
    (line,) = (line.strip() for line in text.splitlines() if line.strip().startswith(start))
    for name, value in (("BASE_URL", "ADDRESS/v1"), ("MODEL", "MODEL"), ("KEY", "KEY")):
        line = line.replace(f"={name}", f'="{value}"').replace(f": {name}", f': "{value}"')
    return line.replace('"openai/" + MODEL', '"openai/MODEL"').replace('"any"', '"KEY"').replace("(MODEL", '("MODEL"')


def shell_variables(environ: Mapping[str, str]) -> Iterator[str]:
    for name, value in environ.items():
        yield f"export {name}={value}"


NOT_CHAT = "does not support chat completions: the provider {} has another API"
NOT_MESSAGES = "does not support Anthropic's Messages API: the provider {} has another API"


def refusals(reason: str, *upstreams: str) -> dict[str, str]:
    return {upstream: reason.format({"built-in": "local"}.get(upstream, upstream)) for upstream in upstreams}


ONLY_CHAT = refusals(NOT_CHAT, "claude", "native", "built-in")
ONLY_CLAUDE = refusals(NOT_MESSAGES, "chat", "native", "built-in")

RESPONSES, CHAT, MESSAGES = "Responses", "chat completions", "Messages"

CLIENTS = (
    Client(
        "Codex", "@openai/codex@0.171.0", RESPONSES, run_codex, codex_steps,
        ("toml", f"# ~/.codex/config.toml\n{CODEX_SETTINGS}"), "codex",
        {"built-in": "does not support tools"},
    ),
    Client(
        "Claude Code", "@anthropic-ai/claude-code@2.1.332", MESSAGES, run_claude_code, claude_code_steps,
        ("sh", "\n".join([*shell_variables(CLAUDE_ENVIRON), "claude --model MODEL"])), "claude", ONLY_CLAUDE,
    ),
    Client(
        "opencode", "opencode-ai@1.18.33", RESPONSES, run_opencode, opencode_steps,
        ("json", json.dumps(OPENCODE_SETTINGS, indent=2)), "opencode",
        {"built-in": "does not support tools"},
    ),
    Client(
        "openai-node", "openai@7.59.0", RESPONSES, node_runner("openai_task.mjs"), library_steps,
        ("js", script_line("openai_task.mjs", "const client")), "node clients", by_default="claude",
    ),
    Client(
        "Vercel AI SDK", "@ai-sdk/openai@4.0.118", RESPONSES, node_runner("vercel_task.mjs"), library_steps,
        ("js", script_line("vercel_task.mjs", "const model")), "node clients", by_default="chat",
    ),
    Client(
        "@openai/agents", "@openai/agents@0.20.0", RESPONSES, node_runner("agents_task.mjs"), library_steps,
        ("js", script_line("agents_task.mjs", "setDefaultOpenAIClient")), "node clients", by_default="native",
    ),
    Client(
        "langchain-openai", "langchain-openai==1.7.4", RESPONSES, python_runner("langchain_openai_client.py"),
        library_steps, ("python", script_line("langchain_openai_client.py", "chat =")), "uv",
    ),
    Client(
        "pydantic-ai", "pydantic-ai-slim[openai]==2.68.0", RESPONSES, python_runner("pydantic_ai_client.py"),
        library_steps, ("python", script_line("pydantic_ai_client.py", "client =")), "uv",
    ),
    Client(
        "LlamaIndex", "llama-index-llms-openai==0.8.3", RESPONSES, python_runner("llama_index_client.py"),
        library_steps, ("python", script_line("llama_index_client.py", "llm =")), "uv",
    ),
    Client(
        "llm", "llm==0.36", CHAT, python_runner("llm_client.py"), library_steps,
        ("yaml", "# extra-openai-models.yaml in the folder of: llm logs path\n"
                 "- model_id: mine\n  model_name: MODEL\n  api_base: ADDRESS/v1\n  supports_tools: true"),
        "uv", ONLY_CHAT,
    ),
    Client(
        "LiteLLM (responses)", "litellm==1.110.2", RESPONSES, python_runner("litellm_client.py"), library_steps,
        ("python", script_line("litellm_client.py", "common =")), "uv",
    ),
    Client(
        "LiteLLM (completion)", "litellm==1.110.2", CHAT, python_runner("litellm_client.py", "chat"), library_steps,
        ("python", script_line("litellm_client.py", "common =")), "uv", ONLY_CHAT,
    ),
)  # fmt: skip
