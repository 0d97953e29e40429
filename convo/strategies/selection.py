"""The owner that the flags select, and the owner that a handle belongs to.

`resp_` and `conv_` ids belong to the endpoint, a path is a replay file, anything else is a session's name or id.
"""

import re
from collections.abc import Collection
from typing import NamedTuple

from convo.errors import InvalidUsage, WrongOwner
from convo.history.items import is_valid_id
from convo.history.records import Strategy
from convo.strategies.strategy import STRATEGIES

TURN_HANDLE_PATTERN = re.compile(r"(.+)@(-?\d{1,9})", re.ASCII)
"""A handle and a turn number."""


class OwnerSelection(NamedTuple):
    """The owner that the flags select.

    strategy:          named, or implied by the handle; None: that of the session's record
    handle:            None for a new conversation
    use_last_session:  continue the session used last
    """

    strategy: Strategy | None
    handle: str | None = None
    use_last_session: bool = False

    @property
    def replay_file(self) -> str | None:
        """The file to replay, as the user named it; None for another owner or a new file."""
        return self.handle if self.strategy and STRATEGIES[self.strategy].uses_file else None


def select_owner(flags: Collection[Strategy], handle: str | None, *, use_last_session: bool = False) -> OwnerSelection:
    """Decide the owner from the flags `--replay --session --conversation --chain --from -c`.

    Raises WrongOwner for two owners or a handle of another owner than the flag, and InvalidUsage for -c together
    with --from or a malformed id.
    """
    if handle:
        check_handle(handle)
    handle_owner = owner_of_handle(handle) if handle else None
    if len(flags) > 1:
        flag_names = " and ".join(f"--{flag}" for flag in sorted(flags))
        raise WrongOwner(
            f"{flag_names} cannot be used together: a conversation has one owner{_owner_clause(handle)}",
            hint=_flags_hint(handle_owner),
        )
    if use_last_session and handle:
        raise InvalidUsage(
            "-c and --from cannot be used together: -c continues the session used last", hint="use one of them"
        )
    strategy = next(iter(flags), None)
    if (
        strategy
        and handle
        and handle_owner not in (strategy, Strategy.SESSION)
        and _is_certain_mismatch(strategy, handle_owner)
    ):
        raise WrongOwner(
            f"--{strategy} expects {STRATEGIES[strategy].handle_format}{_owner_clause(handle)}",
            hint=_flags_hint(handle_owner),
        )
    return OwnerSelection(strategy or _implied_strategy(handle_owner), handle, use_last_session)


def parse_turn_handle(handle: str) -> tuple[str, int | None]:
    """Split "HANDLE@N" into HANDLE and N; N is None without one. N counts from 1; -1 is all but the last turn."""
    match = TURN_HANDLE_PATTERN.fullmatch(handle)
    return (match[1], int(match[2])) if match else (handle, None)


def check_handle(handle: str) -> None:
    """Raise InvalidUsage for a malformed id of a response or a conversation, such as "conv_1/../../admin"."""
    noun = STRATEGIES[owner_of_handle(handle)].id_noun
    if noun and not is_valid_id(handle):
        excerpt = repr(handle[:64])[1:-1] + ("..." if len(handle) > 64 else "")
        raise InvalidUsage(f"'{excerpt}' is not the id of a {noun}", hint="convo sessions lists the conversations")


def owner_of_handle(handle: str) -> Strategy:
    """Return the owner of handles of this form."""
    for strategy, owner in STRATEGIES.items():
        if owner.handle_prefix and handle.startswith(owner.handle_prefix):
            return strategy
    if handle.endswith(".json") or "/" in handle or "\\" in handle:
        return Strategy.REPLAY
    return Strategy.SESSION


def is_file_handle(handle: str) -> bool:
    """Return whether a handle has the form of a replay file's path."""
    return owner_of_handle(handle) is Strategy.REPLAY


def is_session_handle(handle: str) -> bool:
    """Return whether a handle has the form of a session's name or id."""
    return owner_of_handle(handle) is Strategy.SESSION


def _is_certain_mismatch(strategy: Strategy, handle_owner: Strategy | None) -> bool:
    """Return whether the owners differ for certain: only ids prove an owner, files and sessions may have any name."""
    return any(owner and STRATEGIES[owner].handle_prefix for owner in (strategy, handle_owner))


def _implied_strategy(handle_owner: Strategy | None) -> Strategy | None:
    """Return the strategy that a handle implies; a session's name implies none, its record has it."""
    return None if handle_owner is Strategy.SESSION else handle_owner


def _owner_clause(handle: str | None) -> str:
    if not handle:
        return ""
    handle_owner = owner_of_handle(handle)
    return f"; {handle!r} belongs to {STRATEGIES[handle_owner].description} (--{handle_owner})"


def _flags_hint(handle_owner: Strategy | None) -> str:
    return f"--{handle_owner} --from HANDLE" if handle_owner else "use one of them"
