"""The theme: the colors of everything that is shown on a terminal, and the abilities of known terminals.

A terminal of 16 colors shows them as its user chose them. For one of 256 the theme has colors of its own: the contrast
of each is at least 4 on white and on black, which the usual yellow, cyan and dim text do not reach on a light
background. Output that rich draws has the same styles, by the same names.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.theme import Theme


class ThemeStyle(NamedTuple):
    """A style: its SGR parameter, its name in rich, and its number in the palette of 256 colors, if it is a color."""

    sgr: str
    rich_name: str
    palette_number: int | None = None


STYLES = {
    "bold": ThemeStyle("1", "bold"),
    "dim": ThemeStyle("2", "dim", 243),
    "bad": ThemeStyle("31", "red", 161),
    "good": ThemeStyle("32", "green", 28),
    "warn": ThemeStyle("33", "yellow", 130),
    "id": ThemeStyle("36", "cyan", 30),
}
"""The styles of the terminal; "id" is the accent color."""


def get_sgr_parameters(style: str, *, has_palette: bool) -> str:
    """Return the SGR parameters of a style of `STYLES`; `has_palette`: the terminal has 256 colors."""
    number = STYLES[style].palette_number
    return STYLES[style].sgr if number is None or not has_palette else f"38;5;{number}"


def get_rich_style(style: str, *, has_palette: bool) -> str:
    """Return the definition of a style of `STYLES` for rich."""
    number = STYLES[style].palette_number
    return STYLES[style].rich_name if number is None or not has_palette else f"color({number})"


def make_rich_theme(*, has_palette: bool, other_styles: Mapping[str, str] | None = None) -> "Theme":
    """Return the theme of a rich console, with the styles of `STYLES` by their names and those of progress bars.

    other_styles:  definitions by name; each word of one may be a name of `STYLES`
    """
    from rich.theme import Theme

    styles = {name: get_rich_style(name, has_palette=has_palette) for name in STYLES}
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


def detect_color_system(environ: Mapping[str, str]) -> str:
    """Return the color system of the terminal: "standard" with 16 colors, "256" or "truecolor"."""
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
