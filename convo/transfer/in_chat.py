"""The owner of a conversation that is open is changed: `/owner` in a chat.

What was open stays as it is, and the chat goes on with the session that was made beside it.
"""

from convo.engine.chat import Chat
from convo.engine.looking import of_session
from convo.engine.record import reopened
from convo.errors import Usage
from convo.history import Strategy
from convo.strategies.carrying import Carried, Target, carry
from convo.transfer.beside import Beside
from convo.transfer.handing import Wish, hand_over, worth_it
from convo.transfer.taking import taken


async def with_owner(chat: Chat, to: Strategy) -> tuple[Chat, Carried]:
    """The same conversation held by `to`, as another chat, and what went over.

    raises:  Usage  nothing was said yet, or `to` holds it already;  as `hand_over`
    """
    edges = chat.edges
    chat.reread()
    session = await edges.store.session(chat.session.id)
    if session is None:
        raise Usage("nothing was said yet", hint=f"leave, and begin with convo chat --{to}")
    source = await taken(await of_session(edges.store, session), edges.store, edges.endpoint)
    target = Target(to, edges.endpoint.scope, chat.asking.model)
    worth_it(source, target)
    carried = carry(source.said, target)
    beside = Beside(edges.store, edges.clock, edges.new_id)
    made = await hand_over(source, carried, target, Wish(), beside, edges.endpoint)
    return Chat(await reopened(made, edges), chat.asking, edges), carried
