"""The context windows and prices of models, as text and as JSON."""

import re

from convo.terminal.settings_views import PriceReport, build_known_models_report, render_known_models
from convo.terminal.terminal import DisplayOptions
from convo.usage.model_info import SETTINGS_SOURCE, ModelWindow, load_known_models
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


def test_every_model_that_is_served_has_a_line_with_its_source() -> None:
    lines = render_known_models(EMPTY_SETTINGS, DisplayOptions()).splitlines()
    cells = [line.split() for line in lines[1:-2]]
    assert [name for name, *_ in cells] == [name for name, model in load_known_models().items() if model.window]
    assert all(len(line) > 6 for line in cells)
    assert "as of 20" in lines[-1]


def test_user_settings_come_first_with_their_source() -> None:
    rows = {row.model: row for row in build_known_models_report(USER_SETTINGS).models}
    assert rows["openai/gpt-5-mini"].price == PriceReport(9.0, 9.0, 10.0, None, SETTINGS_SOURCE)
    windows = [rows[f"openai/gpt-5-{name}"].window for name in ("nano", "mini")]
    assert [window and window.context for window in windows] == [1000, 400_000]
    assert rows["groq/fast"].window is None
    assert rows["groq/slow"].window == ModelWindow(8192, 1024, source=SETTINGS_SOURCE)


def test_an_unknown_price_is_a_dash_or_null() -> None:
    rows = {row.model: row for row in build_known_models_report(EMPTY_SETTINGS).models}
    assert rows["openai/gpt-5.4"].price is None
    line = next(
        line
        for line in render_known_models(EMPTY_SETTINGS, DisplayOptions()).splitlines()
        if line.startswith("openai/gpt-5.4 ")
    )
    assert line.split()[2:5] == ["-", "-", "-"]


def test_the_row_of_a_model_has_its_shutdown_and_the_kind_and_the_date_of_its_source() -> None:
    rows = {row.model: row for row in build_known_models_report(USER_SETTINGS).models}
    assert "openai/o4-mini" not in rows
    assert rows["openai/gpt-5-mini"].shutdown == ("2026-12-11", "openai/gpt-6.1-terra")
    astra, own = rows["openai/gpt-6.2-astra"], rows["groq/fast"]
    assert (astra.shutdown, astra.read, astra.is_secondary) == (None, "2026-11-28", True)
    assert (own.shutdown, own.read, own.is_secondary) == (None, None, False)
    output = render_known_models(USER_SETTINGS, DisplayOptions())
    lines = {line.split()[0]: re.split(" {2,}", line) for line in output.splitlines() if line}
    assert "2026-12-11" in lines["openai/gpt-5-mini"]
    assert lines["openai/gpt-6.2-astra"][1:5] == ["about 1,050,000", "about 8", "about 0.4", "about 40"]
