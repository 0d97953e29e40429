"""The list of models, for a terminal and for a pipe."""

from pathlib import Path

from convo.config.sections import Provider
from convo.errors import KeyRefused, ModelMissing, Unreachable
from convo.terminal.settings_views import BuiltInModel, ProviderStatus, render_models
from convo.terminal.terminal import DisplayOptions, text_width
from tests.config.settings_inputs import make_settings

GROQ = Provider("groq", "chat", base_url="https://api.groq.example/openai/v1", key_env="GROQ_API_KEY")
ENTRIES = [
    ProviderStatus(GROQ, "not set", "GROQ_API_KEY", setup_error=KeyRefused("groq needs a key")),
    ProviderStatus(Provider("local", "local"), "none needed", None, setup_error=ModelMissing("not here")),
    ProviderStatus(
        Provider("ollama", "chat", base_url="http://127.0.0.1:11434/v1"),
        "none needed",
        None,
        models={"a:1b": None, "b": None},
    ),
    ProviderStatus(
        Provider("vllm", "chat", base_url="http://gpu/v1"), "none needed", None, list_error=Unreachable("it is off")
    ),
]
NOW = 1_795_824_000.0
"""28 November 2026."""

MISSING = BuiltInModel("local/tiny", 98_362_432, None, "convo models pull")

SCREEN = """\
  default   local/smollm2-135m-instruct (built in; no key found)
  window    4,096 tokens
  built in  local/tiny, not installed; to install it: convo models pull
  settings  /home/me/.config/convo/config.toml (no settings yet)

provider  api    endpoint  set up         key                   base URL
groq      chat   embedded  no key         GROQ_API_KEY not set  https://api.groq.example/openai/v1
local     local  embedded  not installed  none needed           -
ollama    chat   embedded  yes            none needed           http://127.0.0.1:11434/v1
vllm      chat   embedded  yes            none needed           http://gpu/v1

ollama/a:1b
ollama/b"""


def test_a_pipe_gets_every_column_and_every_model_name() -> None:
    assert render_models(make_settings(), MISSING, ENTRIES, DisplayOptions(), NOW) == SCREEN


def test_settings_files_are_named_in_order_of_precedence() -> None:
    settings = make_settings(project='model = "local"', user='[aliases]\nfast = "local"')
    output = render_models(settings, MISSING, ENTRIES, DisplayOptions(), NOW)
    assert "  settings  /home/me/work/.convo.toml\n            /home/me/.config/convo/config.toml\n" in output


def test_an_alias_without_a_model_states_the_reason() -> None:
    settings = make_settings(user='[aliases]\nfast = "groqq/llama"\nround = "round"')
    output = render_models(settings, MISSING, ENTRIES, DisplayOptions(), NOW)
    assert "  aliases   fast = groqq/llama\n            [aliases] fast: no provider 'groqq' for 'groqq/llama'" in output
    assert (
        "\n            round = round\n            [aliases] round: the aliases are circular: round -> round\n" in output
    )


def test_in_a_narrow_terminal_no_line_is_too_long() -> None:
    output = render_models(make_settings(), MISSING, ENTRIES, DisplayOptions(60), NOW).splitlines()
    assert all(text_width(line) <= 60 for line in output)
    assert "endpoint" not in "".join(output)
    assert output[-2:] == ["ollama/a:1b", "ollama/b"]


def test_a_list_without_requested_servers_ends_with_the_table() -> None:
    assert render_models(make_settings(), MISSING, ENTRIES[:2], DisplayOptions(), NOW).endswith(
        "none needed           -"
    )


def test_control_characters_in_a_name_are_escaped() -> None:
    hostile = ProviderStatus(GROQ, "set", "GROQ_API_KEY", models={"\x1b[2Jgone": None})
    assert render_models(make_settings(), MISSING, [hostile], DisplayOptions(), NOW).endswith("\n\ngroq/\\x1b[2Jgone")


def test_present_weights_are_named_with_their_size() -> None:
    installed = BuiltInModel("local/tiny", 98_362_432, Path("/models/tiny.gguf"))
    assert "  built in  local/tiny, /models/tiny.gguf (98 MB)\n" in render_models(
        make_settings(), installed, ENTRIES, DisplayOptions(), NOW
    )


def test_a_terminal_shows_the_path_of_the_built_in_model_only_where_it_is_wide() -> None:
    installed = BuiltInModel("local/tiny", 98_362_432, Path("/models/tiny.gguf"))
    narrow = render_models(make_settings(), installed, ENTRIES, DisplayOptions(80), NOW)
    assert "  built in  local/tiny, installed (98 MB)\n  settings" in narrow
    wide = render_models(make_settings(), installed, ENTRIES, DisplayOptions(120), NOW)
    assert "  built in  local/tiny, installed (98 MB)\n            /models/tiny.gguf\n" in wide


def test_a_terminal_names_a_missing_key_once_in_the_color_of_a_warning() -> None:
    (line,) = [
        line
        for line in render_models(
            make_settings(), MISSING, ENTRIES, DisplayOptions(100, has_color=True), NOW
        ).splitlines()
        if "GROQ_API_KEY" in line
    ]
    assert "\x1b[33m⊘ no key\x1b[0m" in line
    assert "not set" not in line


def test_a_terminal_shows_first_the_providers_that_are_set_up() -> None:
    lines = render_models(make_settings(), MISSING, ENTRIES[:4], DisplayOptions(80), NOW).splitlines()
    providers = [provider.provider.name for provider in ENTRIES]
    rows = [line for line in lines if line.strip("│ ").split(" ")[0] in providers]
    assert [row.strip("│ ").split(" ")[0] for row in rows] == ["ollama", "vllm", "groq", "local"]
    assert not any("needed" in row for row in rows)


def test_a_terminal_shows_prices_with_their_currency_and_the_default_model_bold() -> None:
    settings = make_settings(user='model = "openai/gpt-6.1-terra"')
    output = render_models(settings, MISSING, ENTRIES, DisplayOptions(80, has_color=True), NOW)
    assert "$1 input, $0.05 cached, $5 output per million tokens\n" in output
    assert "openai/gpt-6-luna, $0.1 input, $0.5 output\n" in output
    assert "\x1b[1mopenai/gpt-6.1-terra\x1b[0m (" in output
    assert "input 1, cached 0.05, output 5 USD per million tokens\n" in render_models(
        settings, MISSING, ENTRIES, DisplayOptions(), NOW
    )


def test_a_model_that_ends_within_60_days_has_its_date_and_its_replacement() -> None:
    settings = make_settings(user='model = "openai/gpt-5-mini"')
    soon, later = {"gpt-5-mini": None, "new": "2027-01-27"}, {"gpt-4o": "2027-01-28", "gpt-6.1-terra": None}
    entry = ProviderStatus(Provider("openai", "responses"), "set", "OPENAI_API_KEY", models=soon | later)
    lines = render_models(settings, MISSING, [entry], DisplayOptions(), NOW).splitlines()
    assert "  shutdown  2026-12-11, replaced by openai/gpt-6.1-terra" in lines
    assert lines[-4:] == [
        "openai/gpt-5-mini  shutdown 2026-12-11, replaced by openai/gpt-6.1-terra",
        "openai/new  shutdown 2027-01-27",
        "openai/gpt-4o",
        "openai/gpt-6.1-terra",
    ]
