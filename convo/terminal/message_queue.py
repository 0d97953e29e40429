"""Messages that are typed while an answer streams, and the rows that show them.

Each is sent in order after the answer. After an answer that was stopped or that failed they are held: the prompt shows
them one by one, and only Enter sends them.
"""

from typing import NamedTuple

from convo.terminal.terminal import cut_start, escape_control_chars, truncate_text


class TypedMessage(NamedTuple):
    """A typed message, and the pasted parts of it."""

    text: str = ""
    pasted_texts: tuple[str, ...] = ()


EMPTY_MESSAGE = TypedMessage()

SEPARATOR = " · "
EDITING_HINT = " · Up to edit"
FORWARDING_HINT = "further keys go to the next prompt"

MAX_SHOWN_MESSAGES = 3
"""Messages that are shown, the last ones; of more there is the number."""

MAX_RENDERED_CHARS = 2_000
"""Characters of a message or of the draft that are rendered at each key; the terminal shows fewer."""

MIN_DRAFT_COLUMNS = 6
"""Columns below which the draft is left out."""


class MessageQueue:
    """The queued messages, oldest first, and the draft of the next one.

    is_open:     whether typed keys belong to the queue
    is_forwarding:  whether a key needed the editor, so that this one and all later ones wait for the prompt
    is_held:     whether the messages wait for the user
    """

    def __init__(self) -> None:
        self.messages: list[TypedMessage] = []
        self.draft = EMPTY_MESSAGE
        self.is_open = self.is_forwarding = self.is_held = False

    def type_text(self, text: str) -> None:
        self.draft = self.draft._replace(text=self.draft.text + text)

    def paste(self, text: str) -> None:
        self.draft = TypedMessage(self.draft.text + text, (*self.draft.pasted_texts, text))

    def delete_char(self) -> None:
        self.draft = self.draft._replace(text=self.draft.text[:-1])

    def delete_word(self) -> None:
        words = self.draft.text.rstrip()
        self.draft = self.draft._replace(text=words[: len(words) - len((words.split() or [""])[-1])])

    def clear_draft(self) -> None:
        self.draft = EMPTY_MESSAGE

    def enter(self) -> None:
        """Queue the draft, unless it is blank."""
        if self.draft.text.strip():
            self.messages.append(self.draft)
        self.draft = EMPTY_MESSAGE

    @property
    def can_edit_last(self) -> bool:
        return bool(self.messages) and not self.draft.text

    def edit_last(self) -> None:
        """Make the message that was queued last the draft; there must be one."""
        self.draft = self.take_last()

    def take_last(self) -> TypedMessage:
        """Remove the message that was queued last and return it; there must be one."""
        message = self.messages.pop()
        self.is_held = self.is_held and bool(self.messages)
        return message

    def take_next(self) -> TypedMessage | None:
        """Remove the message that is to be sent now and return it; None if there is none, or if they are held."""
        return self.messages.pop(0) if self.messages and not self.is_held else None

    def take_for_prompt(self) -> TypedMessage:
        """Remove the text that the next prompt begins with and return it: the next held message, else the draft."""
        if self.messages:
            message = self.messages.pop(0)
        else:
            message, self.draft = self.draft, EMPTY_MESSAGE
        self.is_held = self.is_held and bool(self.messages)
        return message

    def hold(self) -> None:
        """Send none of the messages before the user has seen it."""
        self.is_held = bool(self.messages)

    def render(self, columns: int) -> list[str]:
        """Render the last messages and the end of the draft, each in one row."""
        messages = self.messages[-MAX_SHOWN_MESSAGES:]
        earlier_count = len(self.messages) - len(messages)
        rows = [f"queued: {earlier_count} more"] if earlier_count else []
        rows += [f"queued: {_to_one_line(message.text[:MAX_RENDERED_CHARS])}" for message in messages]
        draft = _to_one_line(self.draft.text[-MAX_RENDERED_CHARS:])
        if rows and not draft and not self.is_forwarding:
            rows[-1] = truncate_text(rows[-1], columns - len(EDITING_HINT)) + EDITING_HINT
        hint = FORWARDING_HINT if self.is_forwarding else ""
        free_columns = columns - (len(SEPARATOR + hint) if hint else 0)
        shown_draft = f"> {cut_start(draft, free_columns - 2)}" if draft and free_columns > MIN_DRAFT_COLUMNS else ""
        draft_row = SEPARATOR.join(part for part in (shown_draft, hint) if part)
        return [*rows, *([draft_row] if draft_row else [])]


def _to_one_line(text: str) -> str:
    return " ".join(escape_control_chars(text).split("\n"))
