"""The context windows and prices of models, as text and as JSON."""

from convo.terminal.settings_views import known_models_to_json, render_known_models
from convo.terminal.terminal import DisplayOptions
from convo.usage.model_info import SETTINGS_SOURCE, load_model_windows, load_prices
from tests.config.settings_inputs import make_settings

EMPTY_SETTINGS = make_settings()
USER_SETTINGS = make_settings(
    user="""
    [prices]
    "groq/fast" = { input = 1, cached = 0.5, output = 2 }
    "openai/gpt-5-mini" = { input = 9, output = 10 }
    [windows]
    "groq/slow" = { context = 8192, output = 1024 }
    "openai/gpt-5-nano" = { context = 1000 }
    """
)


def test_every_window_and_every_price_has_a_line_with_its_source() -> None:
    lines = render_known_models(EMPTY_SETTINGS, DisplayOptions()).splitlines()
    cells = [line.split() for line in lines[1:-2]]
    assert {name for name, *_ in cells} >= set(load_prices())
    assert {name.rpartition("/")[2] for name, *_ in cells} >= set(load_model_windows())
    assert all(len(line) > 5 for line in cells)
    assert "as of 20" in lines[-1]


def test_user_settings_come_first_with_their_source() -> None:
    rows = {row["model"]: row for row in known_models_to_json(USER_SETTINGS)["models"]}
    assert rows["openai/gpt-5-mini"]["price"] == {
        "input": 9.0,
        "cached": 9.0,
        "output": 10.0,
        "upto": None,
        "source": SETTINGS_SOURCE,
    }
    assert rows["groq/fast"]["window"] is None
    assert rows["groq/slow"]["window"] == {"context": 8192, "output": 1024, "source": SETTINGS_SOURCE}
    assert rows["openai/gpt-5-nano"]["window"]["context"] == 1000
    assert rows["openai/gpt-5-mini"]["window"]["context"] == 400_000


def test_an_unknown_price_is_a_dash_or_null() -> None:
    rows = {row["model"]: row for row in known_models_to_json(EMPTY_SETTINGS)["models"]}
    assert rows["gpt-5.4"]["price"] is None
    line = next(
        line
        for line in render_known_models(EMPTY_SETTINGS, DisplayOptions()).splitlines()
        if line.startswith("gpt-5.4 ")
    )
    assert line.split()[2:5] == ["-", "-", "-"]
