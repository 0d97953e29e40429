"""The colors of the theme, on light and on dark terminals."""

import io

import pytest
from rich.color import Color

from convo.terminal.tables import panel_lines, render_bar
from convo.terminal.terminal import DisplayOptions, detect_display
from convo.terminal.theme import STYLES, ColorSystemName, make_prompt_style, make_rich_theme
from tests.terminal.test_capabilities import fake_terminal

PALETTE = DisplayOptions(40, has_color=True, color_system="256")


def luminance(color: Color) -> float:
    """The relative luminance of WCAG 2."""
    red, green, blue = (
        channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4
        for channel in (value / 255 for value in color.get_truecolor())
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("name", [name for name, style in STYLES.items() if style.palette_number is not None])
@pytest.mark.parametrize("color_system", ["256", "truecolor"])
def test_each_color_has_enough_contrast_on_white_and_on_black(name: str, color_system: ColorSystemName) -> None:
    color = make_rich_theme(color_system).styles[name].color
    assert color is not None
    assert min(1.05 / (luminance(color) + 0.05), (luminance(color) + 0.05) / 0.05) >= 4.5
    shown = PALETTE._replace(color_system=color_system).apply_style("x", name)
    assert shown == f"\x1b[{';'.join(color.get_ansi_codes())}mx\x1b[0m"


@pytest.mark.parametrize("name", ["dim", "bad", "good", "warn", "id"])
def test_screens_of_prompt_toolkit_have_the_colors_of_the_theme(name: str) -> None:
    def find_color(**environ: str) -> str:
        attributes = make_prompt_style(environ).get_attrs_for_style_str(f"class:{name}")
        assert attributes.color is not None
        return attributes.color

    rgb = STYLES[name].rgb
    assert find_color(TERM="xterm-256color") == find_color(TERM="xterm", COLORTERM="truecolor") == rgb[1:]
    own = "" if name == "dim" else f"ansi{STYLES[name].rich_name}"
    assert find_color(TERM="xterm") == find_color(TERM="xterm-256color", NO_COLOR="1") == own


def test_every_style_but_bold_has_a_color_of_its_own() -> None:
    numbers = [style.palette_number for name, style in STYLES.items() if name != "bold"]
    assert None not in numbers
    assert len(set(numbers)) == len(numbers)


def test_a_terminal_of_sixteen_colors_shows_its_own() -> None:
    display = PALETTE._replace(color_system="standard")
    assert [display.apply_style("x", name).partition("m")[0] for name in ("dim", "bad", "id")] == [
        "\x1b[2",
        "\x1b[31",
        "\x1b[36",
    ]


@pytest.mark.parametrize(("color_system", "border"), [("standard", "\x1b[2m╭"), ("256", "\x1b[38;5;243m╭")])
def test_a_panel_has_the_colors_of_the_theme(color_system: ColorSystemName, border: str) -> None:
    lines = panel_lines("mine", ["x"], PALETTE._replace(color_system=color_system))
    assert lines[0].startswith(border)
    assert "\x1b[1;39m mine " in lines[0]


def test_a_bar_has_eighths_of_a_column_and_shows_every_value_above_zero() -> None:
    display = DisplayOptions(80)
    assert render_bar(40, 40, 10, display) == "█" * 10
    assert render_bar(5, 40, 10, display, is_padded=True) == "█▎        "
    assert (render_bar(1, 10_000, 10, display), render_bar(0, 10_000, 10, display)) == ("█", "")
    assert render_bar(20, 40, 10, display._replace(has_box_chars=False)) == "#####"
    assert render_bar(40, 40, 2, PALETTE) == "\x1b[38;5;63m██\x1b[0m"


def test_links_and_colors_are_for_terminals_alone() -> None:
    environ = {"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}
    shown = detect_display(fake_terminal(), environ)
    assert (shown.has_links, shown.color_system) == (True, "256")
    assert not detect_display(fake_terminal(), {**environ, "NO_COLOR": "1"}).has_links
    assert not detect_display(fake_terminal(), {**environ, "TMUX": "/tmp/x"}).has_links
    piped = detect_display(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), environ)
    assert (piped.has_links, piped.has_color, piped.width) == (False, False, None)
