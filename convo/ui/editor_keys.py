"""What the keys of the prompt do, beyond what line editors agree on.

Enter sends, whatever the message's number of lines. Ctrl-J breaks the line, and so does Esc Enter.
In vi mode Esc has its own meaning, so there Esc Enter is free, and the way to the last message is Esc
at an empty line. Esc is also what stops an answer: one that comes too late must not take the slash from
the command that is typed next. Ctrl-C leaves what is open, innermost first: a search, a message, the chat.
"""

from collections.abc import Callable

from prompt_toolkit.application import get_app
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import Condition, emacs_mode, has_focus, is_searching, vi_navigation_mode
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.search import SearchDirection, start_search, stop_search

from convo.errors import Interrupted
from convo.ui.editor_history import catch_up

AT_PROMPT = has_focus(DEFAULT_BUFFER)

AGAIN = "/edit"
"""What stands behind the keys for the last message."""


@Condition
def nothing_typed() -> bool:
    return not get_app().current_buffer.text


def keys(pasted: Callable[[str], None]) -> KeyBindings:
    """The bindings; `pasted` is told every text that was not typed."""
    bindings = KeyBindings()
    bindings.add("enter", filter=AT_PROMPT)(send)
    bindings.add("c-j", filter=AT_PROMPT)(break_line)
    bindings.add("escape", "enter", filter=AT_PROMPT & emacs_mode)(break_line)
    bindings.add("escape", "escape", filter=AT_PROMPT & emacs_mode & nothing_typed)(last_message)
    bindings.add("escape", filter=AT_PROMPT & vi_navigation_mode & nothing_typed)(last_message)
    bindings.add("c-r", filter=AT_PROMPT & nothing_typed)(search)
    bindings.add("c-x", "c-e", filter=AT_PROMPT)(edit)
    bindings.add("escape", "/", filter=AT_PROMPT & emacs_mode & nothing_typed)(slash)
    for interrupt in ("c-c", "<sigint>"):
        bindings.add(interrupt, filter=~is_searching)(stop)
        bindings.add(interrupt, filter=is_searching)(leave_search)

    @bindings.add(Keys.BracketedPaste)
    def paste(event: KeyPressEvent) -> None:
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        pasted(text)
        event.current_buffer.insert_text(text)

    return bindings


def send(event: KeyPressEvent) -> None:
    """Take the completion that was chosen; where none was, the message is done."""
    buffer = event.current_buffer
    if buffer.complete_state and buffer.complete_state.current_completion:
        buffer.complete_state = None
    else:
        buffer.validate_and_handle()


def break_line(event: KeyPressEvent) -> None:
    event.current_buffer.newline(copy_margin=False)


def slash(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("/")


def last_message(event: KeyPressEvent) -> None:
    event.app.exit(result=AGAIN)


def search(event: KeyPressEvent) -> None:
    """Among what was typed before, here and elsewhere."""
    catch_up(event.current_buffer)
    start_search(direction=SearchDirection.BACKWARD)


def leave_search(event: KeyPressEvent) -> None:
    """Back to the line as it was, which vi's keys would leave in their normal mode."""
    stop_search()
    event.app.vi_state.input_mode = InputMode.INSERT


def edit(event: KeyPressEvent) -> None:
    """Into the person's own editor, and back to the prompt: Enter sends, here as everywhere."""
    event.current_buffer.open_in_editor(validate_and_handle=False)


def stop(event: KeyPressEvent) -> None:
    """Throw away what was typed; where nothing was, hand it on."""
    if event.current_buffer.text:
        event.app.exit(result="")
    else:
        event.app.exit(exception=Interrupted("nothing was typed"))
