"""What /help shows: the commands, what they are called elsewhere, and the keys; in two columns where they fit."""

from collections.abc import Iterator, Mapping, Sequence

KEYS = (
    ("//text", "a message that begins with a slash"),
    ("@FILE", "in a message: send the file along"),
    ("!command", "run it in the shell; !!command puts what it says into the next message"),
    ("Ctrl-J, Esc Enter", "break the line; Enter sends"),
    ("Esc, Ctrl-C", "stop an answer; what came is kept"),
    ("Esc Esc", "at an empty prompt: change the last message"),
    ("Ctrl-R", "search what was typed before"),
    ("Ctrl-X Ctrl-E", "write in $EDITOR"),
    ("Tab", "complete commands, models, handles and files"),
)

NARROW = 60
"""Columns below which what a thing does stands under it."""

INDENT = 6


def guide(rows: Sequence[tuple[str, str]], aliases: Mapping[str, str], width: int | None) -> Iterator[str]:
    """The lines for so many columns; None for a file, where nothing is wrapped."""
    import textwrap  # for those who ask

    everything = [*rows, *KEYS]
    wide = max(len(name) for name, _ in everything)
    for name, about in everything:
        if width is None:
            yield f"  {name:<{wide}}  {about}"
        elif width < NARROW:
            yield f"  {name}"
            yield from textwrap.wrap(about, width - 1, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT)
        else:
            first, *more = textwrap.wrap(about, max(NARROW // 3, width - wide - 5))
            yield f"  {name:<{wide}}  {first}"
            yield from (" " * (wide + 4) + line for line in more)
    yield from textwrap.wrap(
        f"also: {'; '.join(_called(aliases))}", (width or 10_000) - 1, initial_indent="  ", subsequent_indent="    "
    )


def _called(aliases: Mapping[str, str]) -> Iterator[str]:
    """Each command with what else it is called."""
    for name in dict.fromkeys(aliases.values()):
        yield " ".join([f"/{name}", "=", *(f"/{other}" for other, of in aliases.items() if of == name)])
