"""Which pager is taken, and for what."""

import pytest

from convo.terminal.pager import get_pager_command, is_taller_than, print_paged


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ({}, ("less",)),
        ({"PAGER": "most -w"}, ("most", "-w")),
        ({"PAGER": "'/a b/pager' -x"}, ("/a b/pager", "-x")),
        ({"PAGER": "cat"}, ()),
        ({"PAGER": ""}, ()),
        ({"PAGER": "less 'open"}, ("less",)),
    ],
)
def test_pager_names_the_command_and_its_words(said: dict[str, str], command: tuple[str, ...]) -> None:
    assert get_pager_command(said) == command


def test_lines_are_counted_as_the_terminal_breaks_them_and_a_row_is_left_for_the_prompt() -> None:
    assert not is_taller_than("a\nb\n", 80, 3)
    assert is_taller_than("a\nb\nc\n", 80, 3)
    assert is_taller_than("x" * 161, 80, 3)
    assert not is_taller_than("\x1b[33m" + "x" * 80 + "\x1b[0m", 80, 2)
    assert is_taller_than("宽" * 41, 80, 2)


def test_what_goes_into_a_pipe_is_written_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    print_paged("a\n" * 500, {"PAGER": "false"})
    assert capsys.readouterr().out == "a\n" * 500
