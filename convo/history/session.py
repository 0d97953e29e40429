"""The local record of a chat, whatever its strategy.

It binds a name to an owner. For a client's owner its head is the conversation; for an endpoint's
owner it is a mirror, and `handle` is what counts. Items between `mark` and `head` are said and
not confirmed: input whose turn failed, a partial answer, input that is on its way right now.
"""

from dataclasses import dataclass, field

from convo.history.owner import HERE, Scope, Strategy
from convo.history.tree import Key


@dataclass(frozen=True, slots=True)
class Session:
    """One chat's record.

    id:            "ses_..." and unique; `name` is unique too and may be changed
    scope:         the endpoint that its handle belongs to
    model:         "provider/model" of the last turn
    head:          the last node of the local path
    mark:          the last node that the owner confirmed
    link:          the last confirmed link, the parent of the next
    handle:        absolute path of the replay file, `conv_...`, or the `resp_...` that a chain
                   goes on from; None before there is one, and always for a session
    written:       replay only: the head as it last stood in the file
    instructions:  what -s said, sent with every turn
    created_at, used_at:  seconds since 1970
    use:           its place among the last used, as the store counts; None where it is not known. A record that is
                   stored with another `used_at` and without a place is a use: it goes behind all others
    """

    id: str
    name: str
    strategy: Strategy
    model: str
    head: Key
    mark: Key
    created_at: float
    used_at: float
    scope: Scope = HERE
    link: str | None = None
    handle: str | None = None
    written: Key | None = None
    instructions: str | None = None
    use: int | None = field(default=None, compare=False)
