"""The theme: the colors of everything that is shown on a terminal, and the abilities of known terminals.

A terminal of 16 colors shows them as its user chose them. For other terminals the theme has colors of its own, which
can be read on white and on black: the contrast of each is at least 4.5 on both. In the palette of 256 colors only six
reach that (29, 63, 98, 131, 163 and 243), so there an error is magenta, a warning brown and an id blue. The usual
yellow, cyan and dim text do not reach it on a light background. Output that rich and prompt_toolkit draw has the same
styles, by the same names.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from prompt_toolkit.styles import Style
    from rich.theme import Theme


class ThemeStyle(NamedTuple):
    """A style on each kind of terminal; only the first two members if it is not a color.

    sgr:             SGR parameter with 16 colors
    rich_name:       name in rich with 16 colors
    palette_number:  number in the palette of 256 colors
    rgb:             24-bit color as "#rrggbb"
    """

    sgr: str
    rich_name: str
    palette_number: int | None = None
    rgb: str = ""


STYLES = {
    "bold": ThemeStyle("1", "bold"),
    "dim": ThemeStyle("2", "dim", 243, "#767676"),
    "bad": ThemeStyle("31", "red", 163, "#e02948"),
    "good": ThemeStyle("32", "green", 29, "#008839"),
    "warn": ThemeStyle("33", "yellow", 131, "#ac6400"),
    "id": ThemeStyle("36", "cyan", 63, "#00809a"),
}
"""The styles of the terminal; "id" is the accent color."""

ColorSystemName: TypeAlias = Literal["standard", "256", "truecolor"]
"""The colors of a terminal, as rich names them: 16, a palette of 256, or 24 bits."""


def get_sgr_parameters(style: str, color_system: ColorSystemName) -> str:
    """Return the SGR parameters of a style of `STYLES`."""
    sgr, _, number, rgb = STYLES[style]
    if number is None or color_system == "standard":
        return sgr
    if color_system == "256":
        return f"38;5;{number}"
    return "38;2;" + ";".join(str(part) for part in bytes.fromhex(rgb[1:]))


def get_rich_style(style: str, color_system: ColorSystemName) -> str:
    """Return the definition of a style of `STYLES` for rich."""
    _, rich_name, number, rgb = STYLES[style]
    if number is None or color_system == "standard":
        return rich_name
    return f"color({number})" if color_system == "256" else rgb


def make_rich_theme(color_system: ColorSystemName, other_styles: Mapping[str, str] | None = None) -> "Theme":
    """Return the theme of a rich console, with the styles of `STYLES` by their names and those of progress bars.

    other_styles:  definitions by name; each word of one may be a name of `STYLES`
    """
    from rich.theme import Theme

    styles = {name: get_rich_style(name, color_system) for name in STYLES}
    progress = {
        "bar.back": styles["dim"],
        "bar.complete": styles["id"],
        "bar.finished": styles["id"],
        "bar.pulse": styles["id"],
        "progress.elapsed": styles["dim"],
    }
    others = {
        name: " ".join(styles.get(word, word) for word in definition.split())
        for name, definition in (other_styles or {}).items()
    }
    return Theme({**styles, **progress, **others})


def make_prompt_style(environ: Mapping[str, str], other_styles: Mapping[str, str] | None = None) -> "Style":
    """Return the styles of `STYLES` for prompt_toolkit, as classes of their names.

    Without colors (NO_COLOR) and with 16 of them dim text is dim, and the colors are those of the terminal.

    other_styles:  definitions of other classes by name; each word of one may be a name of `STYLES`
    """
    from prompt_toolkit.styles import Style

    color_system = "standard" if environ.get("NO_COLOR") else detect_color_system(environ)
    styles = {
        name: f"ansi{style.rich_name}" if style.rgb and name != "dim" else style.rich_name
        for name, style in STYLES.items()
    }
    if color_system != "standard":
        styles |= {name: style.rgb for name, style in STYLES.items() if style.rgb}
    others = {
        name: " ".join(styles.get(word, word) for word in definition.split())
        for name, definition in (other_styles or {}).items()
    }
    return Style.from_dict({**styles, **others})


def detect_color_system(environ: Mapping[str, str]) -> ColorSystemName:
    """Return the color system of the terminal."""
    if environ.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return "truecolor"
    return "256" if environ.get("TERM", "").endswith(("-256color", "-kitty", "-direct")) else "standard"


LINK_PROGRAMS = ("iTerm.app", "WezTerm", "ghostty", "vscode", "Hyper", "Tabby", "rio", "WarpTerminal")
LINK_TERMS = ("xterm-kitty", "xterm-ghostty", "alacritty", "foot", "foot-extra", "wezterm", "contour")
LINK_VARIABLES = ("KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION", "DOMTERM")
MIN_VTE_VERSION = 5_000
"""Signs of a terminal with clickable links. No query reports this ability, so known terminals are listed."""


def detect_links(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal is known to support hyperlinks (OSC 8)."""
    return not _is_multiplexed(environ) and _is_known(environ)


def detect_reflow(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal is known to wrap long rows again when it becomes narrower; xterm cuts them.

    The terminals with links do, and so do tmux and the one of macOS.
    """
    if _is_multiplexed(environ):
        return "TMUX" in environ
    return _is_known(environ) or environ.get("TERM_PROGRAM") == "Apple_Terminal"


def _is_multiplexed(environ: Mapping[str, str]) -> bool:
    return "TMUX" in environ or environ.get("TERM", "").startswith(("screen", "tmux"))


def _is_known(environ: Mapping[str, str]) -> bool:
    vte = environ.get("VTE_VERSION", "")
    return (
        environ.get("TERM_PROGRAM") in LINK_PROGRAMS
        or environ.get("TERM") in LINK_TERMS
        or (vte.isdigit() and int(vte) >= MIN_VTE_VERSION)
        or any(name in environ for name in LINK_VARIABLES)
    )
