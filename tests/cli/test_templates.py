"""`convo chat -t NAME` and `convo templates`."""

import os
from pathlib import Path

import pytest

from tests.cli.agent_files import agent_flags
from tests.cli.chat_commands import ECHO, scripted_flags, stored_conversation, stored_messages
from tests.command_runner import Convo, Launch
from tests.loopback_server import LoopbackServer

TRANSLATE = """
model = "openai/gpt-4o"
system = "Translate into $language, ${tone}."
prompt = "Translate: $input"
params = { temperature = 0.2, "reasoning.summary" = "auto", verbosity = "low", service_tier = "flex" }
vars = { language = "French" }
"""


@pytest.fixture
def templates(home: Path) -> Path:
    """The folder of the user's templates, with the template `translate`."""
    folder = home / "config" / "templates"
    folder.mkdir(parents=True)
    (folder / "translate.toml").write_text(TRANSLATE)
    return folder


# -- a chat with a template ------------------------------------------------------------------------


@pytest.mark.usefixtures("templates")
def test_a_template_sets_the_prompt_the_instructions_the_model_and_the_parameters(
    server: LoopbackServer, convo: Convo
) -> None:
    got = convo("chat", "-t", "translate", "--var", "tone=politely", "good", "morning, $tone")
    assert got.exit == 0, got
    [body] = server.bodies
    assert body["input"][0]["content"][0]["text"] == "Translate: good morning, $tone"
    assert (body["model"], body["instructions"]) == ("gpt-4o", "Translate into French, politely.")
    assert (body["temperature"], body["service_tier"]) == (0.2, "flex")
    assert (body["reasoning"], body["text"]) == ({"summary": "auto"}, {"verbosity": "low"})


@pytest.mark.usefixtures("templates")
def test_options_precede_the_template_and_the_template_precedes_the_settings(
    server: LoopbackServer, convo: Convo
) -> None:
    convo("config", "set", "request.temperature", "1")
    convo("config", "set", "request.top_p", "0.5")
    flags = ("-m", "openai/gpt-4.1", "-s", "Be brief.", "--verbosity", "high", "--param", "reasoning.effort=low")
    variables = ("--var", "tone=politely", "--var", "language=German = Deutsch")
    got = convo("chat", "-t", "translate", *flags, *variables, stdin="good morning")
    assert got.exit == 0, got
    [body] = server.bodies
    assert (body["model"], body["instructions"]) == ("gpt-4.1", "Be brief.")
    assert (body["temperature"], body["top_p"]) == (0.2, 0.5)
    assert (body["reasoning"], body["text"]) == ({"effort": "low", "summary": "auto"}, {"verbosity": "high"})
    assert body["input"][0]["content"][0]["text"] == "Translate: good morning"


@pytest.mark.parametrize("owner", ["--replay", "--session", "--conversation", "--chain"])
def test_the_instructions_of_a_template_stay_with_the_conversation(
    owner: str, convo: Convo, home: Path, templates: Path
) -> None:
    (templates / "brief.toml").write_text('instructions = "Be brief."\n')
    assert convo("chat", "-t", "brief", *ECHO, owner, "-n", "mine", "one").out == "one\n"
    convo("chat", "-c", "two")
    _, links = stored_conversation(home, "mine")
    assert [link.parameters.get("instructions") for link in links] == ["Be brief.", "Be brief."]


def test_a_prompt_without_input_is_the_message_and_a_message_follows_it(
    convo: Convo, launch: Launch, home: Path, templates: Path
) -> None:
    (templates / "joke.toml").write_text(
        'prompt = """\nA joke for $$5, $5 and ${, about ${topic}."""\nvars.topic = 3\n'
    )
    expanded = "A joke for $5, $5 and ${, about 3."
    assert launch("chat", "-t", "joke", *ECHO).out == f"{expanded}\n"
    assert convo("chat", "-t", "joke", *ECHO, "-n", "mine", "Be quick.").exit == 0
    assert stored_messages(home, "mine")[0] == f"user: {expanded}\n\nBe quick."
    assert convo("chat", "-t", "joke", *ECHO, stdin="From a pipe.").out == f"{expanded}\n\nFrom a pipe.\n"


@pytest.mark.usefixtures("templates")
@pytest.mark.parametrize(
    ("flags", "exit_code", "message", "hint"),
    [
        (
            ("-t", "translate", "hi"),
            2,
            "template 'translate' needs a value for tone",
            "convo chat -t translate --var tone=...",
        ),
        (
            ("-t", "translate", "--var", "tone=x", ""),
            2,
            "template 'translate' contains $input and needs a message",
            'convo chat -t translate "..."',
        ),
        (
            ("-t", "translate", "--var", "tune=x", "hi"),
            2,
            "template 'translate' has no variable 'tune'; did you mean 'tone'?",
            "convo templates show translate",
        ),
        (("-t", "translate", "--var", "input=x", "hi"), 2, "template 'translate' has no variable 'input'", ""),
        (("-t", "translate", "--var", "tone", "hi"), 2, "--var tone is not KEY=VALUE", "--var language=French"),
        (("-t", "translate", "--var", "tone=1", "--var", "tone=2", "hi"), 2, "--var tone is given twice", ""),
        (("--var", "tone=x", "hi"), 2, "--var sets a variable of a template and needs -t", "add -t NAME"),
        (("-t", "translte", "hi"), 5, "no template 'translte'; did you mean 'translate'?", "convo templates"),
        (("-t", "xyz", "hi"), 5, "no template 'xyz'", "convo templates"),
        (("-t", "../config", "hi"), 2, "'../config' is not the name of a template", "use up to 64 letters"),
        (("-t", "a/b", "hi"), 2, "'a/b' is not the name of a template", "use up to 64 letters"),
        (("-t", ".hidden", "hi"), 2, "'.hidden' is not the name of a template", "use up to 64 letters"),
        (("-t", "", "hi"), 2, "'' is not the name of a template", "use up to 64 letters"),
        (("-t", "x" * 65, "hi"), 2, "is not the name of a template", "use up to 64 letters"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_before_any_request(
    flags: tuple[str, ...], exit_code: int, message: str, hint: str, convo: Convo, home: Path
) -> None:
    (home / "config" / "config.toml").write_text("")
    got = convo("chat", *ECHO, *flags)
    assert (got.exit, got.out) == (exit_code, "")
    assert f"convo: {message}" in got.err or message in got.err
    assert f"\n  try: {hint}" in got.err
    assert not (home / "data").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# later", "is empty"),
        ("prompt = 1", "'prompt' must be a string, not a whole number"),
        ('prompt = ""', "'prompt' must not be empty"),
        ('promt = "x"', "no key 'promt'; did you mean 'prompt'?"),
        ('fragments = ["x"]', "no key 'fragments'; known keys: prompt, system, instructions, model, params, vars"),
        ('system = "a"\ninstructions = "b"', "'system' and 'instructions' are both set"),
        ('params = "x"', "'params' must be a table, not a string"),
        ("params = {temperature = 3}", "'params' has 'temperature', which must be from 0 to 2"),
        ('params = {input = "x"}', "'params' has 'input', which cannot be set: convo sets this field itself"),
        ("params = {tools = 1}", "'params' has 'tools', which is not a list like"),
        ("params = {reasoning = {summary = 1}}", "'params' has 'reasoning', which is an object: set its members"),
        ('params = {a = 1, "a.b" = 1}', "'params' has 'a' and 'a.b'"),
        ('prompt = "$a"\nvars = {a = [1]}', "'vars' has 'a', which must be a string or a number, not an array"),
        ('prompt = "$a"\nvars = {b = "x"}', "'vars' has 'b', which neither prompt nor system contains"),
        ('prompt = "$input"\nvars = {input = "x"}', "'vars' cannot set input, which is the message of the user"),
        ('prompt = "x', ", line 1: is not TOML"),
        (f'prompt = "{"x" * 256 * 1024}"', "is larger than 256 KB, the limit of a template"),
    ],
    ids=lambda text: text[:40],
)
def test_an_invalid_template_is_refused_by_file_and_key(text: str, message: str, convo: Convo, templates: Path) -> None:
    (templates / "mine.toml").write_text(text)
    for command in (("chat", *ECHO, "-t", "mine", "hi"), ("templates", "show", "mine")):
        got = convo(*command)
        assert (got.exit, got.out) == (2, "")
        assert f"convo: {templates / 'mine.toml'}" in got.err
        assert message in got.err
    assert message in convo("templates").out.replace("\n", " ")


@pytest.mark.parametrize("kind", ["folder", "pipe", "unreadable encoding"])
def test_a_template_that_is_not_a_text_file_is_refused(kind: str, launch: Launch, templates: Path) -> None:
    path = templates / "odd.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"prompt = '\xff'")
    got = launch("chat", *ECHO, "-t", "odd", "hi")
    assert got.exit == 2
    assert ("is not UTF-8" if kind == "unreadable encoding" else "is not a regular file") in got.err


def test_an_unknown_model_names_the_template(convo: Convo, templates: Path) -> None:
    (templates / "mine.toml").write_text('model = "nope/x"\n')
    got = convo("chat", "-t", "mine", "hi")
    assert got.exit == 2
    assert "convo: template 'mine': no provider 'nope'" in got.err


def test_a_template_for_agents_and_tools_has_no_instructions_of_its_own(convo: Convo, templates: Path) -> None:
    (templates / "ask.toml").write_text('prompt = "Ask: $input"\n')
    (templates / "brief.toml").write_text('system = "Be brief."\n')
    got = convo("chat", "-t", "ask", *agent_flags(), *scripted_flags({"text": "Yes."}), "-n", "mine", "it")
    assert (got.exit, got.out) == (0, "Yes.\n")
    got = convo("chat", "-t", "brief", *agent_flags(), *ECHO, "it")
    assert (got.exit, got.out) == (2, "")
    assert "template 'brief' has instructions and cannot be used with --agent" in got.err


def test_a_schema_and_a_format_in_the_template_are_refused(convo: Convo, templates: Path) -> None:
    (templates / "form.toml").write_text('params = {"text.format.type" = "json_object"}\n')
    Path("schema.json").write_text("{}")
    got = convo("chat", *ECHO, "-t", "form", "--schema", "schema.json", "hi")
    assert (got.exit, got.out) == (2, "")
    assert "--schema and text.format of template 'form' are both given" in got.err


# -- convo templates -------------------------------------------------------------------------------


def test_templates_are_listed_with_their_variables(convo: Convo, templates: Path) -> None:
    (templates / "brief.toml").write_text('system = "Be brief.\\nAnd kind."\n')
    (templates / ".hidden.toml").write_text("")
    (templates / "notes.txt").write_text("")
    assert [line.split() for line in convo("templates").out.splitlines()] == [
        ["template", "variables", "model", "text"],
        ["brief", "-", "-", "Be", "brief."],
        ["translate", "language=French,", "tone,", "input", "openai/gpt-4o", "Translate:", "$input"],
    ]
    brief, translate = convo("templates", "list", "--json").json()
    assert (brief["name"], brief["variables"], brief["uses_input"]) == ("brief", [], False)
    assert translate == {
        "name": "translate",
        "path": str(templates / "translate.toml"),
        "model": "openai/gpt-4o",
        "variables": [{"name": "language", "default": "French"}, {"name": "tone", "default": None}],
        "uses_input": True,
        "error": None,
    }


def test_a_template_is_shown_and_its_path_printed(convo: Convo, templates: Path) -> None:
    assert convo("templates", "show", "translate").out == f"{TRANSLATE.rstrip()}\n"
    assert convo("templates", "path").out == f"{templates}\n"
    assert convo("templates", "path", "new").out == f"{templates / 'new.toml'}\n"
    assert convo("templates", "path", "../new").exit == 2
    assert convo("templates", "show", "new").exit == 5


def test_without_templates_the_list_is_empty(convo: Convo, home: Path) -> None:
    got = convo("templates")
    assert (got.exit, got.out) == (0, "")
    assert got.err == f"no templates in {home / 'config' / 'templates'}; add a file NAME.toml with a prompt\n"
    assert convo("templates", "--json").json() == []
    assert not home.exists()


def test_control_characters_of_a_template_are_not_printed(convo: Convo, templates: Path) -> None:
    (templates / "odd.toml").write_text('prompt = "\\u001b[31mred $x"\nvars.x = "\\u001b[2J"\n')
    for command in (("templates",), ("templates", "show", "odd"), ("templates", "--json")):
        assert "\x1b" not in convo(*command).out
