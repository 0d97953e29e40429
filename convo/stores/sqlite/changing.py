"""One change, in one transaction.

The heads are compared first, so that a change from a stale head is told so before anything else.
What a record stood on before is collected last, when everything that the change brings stands.
"""

from convo.stores import rules
from convo.stores.contract import Change
from convo.stores.sqlite import agents, links, names, records, runs, traces, tree
from convo.stores.sqlite.tenant import Tenant


def commit(t: Tenant, change: Change) -> None:
    """Make `change` true. raises: as the contract says; the caller rolls back"""
    rules.check_names(change)
    session = records.check_session(t, change.session, change.expect) if change.session else None
    talk = (
        records.check_conversation(t, change.conversation, change.conversation_expect) if change.conversation else None
    )
    run = agents.check(t, change.agent_run) if change.agent_run else None
    ended = runs.open_run(t, change.ends) if change.ends else None
    loose = [tree.grow(t, growth) for growth in change.grow]
    for link in change.links:
        loose += links.put(t, link)
    if change.session:
        loose += records.put_session(t, change.session, session)
    if change.conversation:
        loose += records.put_conversation(t, change.conversation, talk)
    for n in _erased(t, change):
        tree.erase(t, n)
    if change.starts:
        runs.start(t, change.starts)
    if ended is not None:
        runs.end(t, ended)
    if change.agent_run:
        agents.put(t, change.agent_run, run)
    for call in change.calls:
        agents.put_call(t, call)
    tree.collect(t, set(loose) - _needed(t, change))
    if change.erase:
        traces.note(t.db)


def _needed(t: Tenant, change: Change) -> set[int]:
    """Nodes that something stands on for sure: a record of this change, or the first node of a growth.

    Should that first node go, then collecting it comes to the one before it too.
    """
    heads = [growth.after for growth in change.grow if growth.items]
    if change.session:
        heads += [change.session.head, change.session.mark]
    if change.conversation:
        heads.append(change.conversation.head)
    return {tree.node(t, key) for key in heads}


def _erased(t: Tenant, change: Change) -> set[int]:
    """The nodes whose items go. raises: NotFound"""
    named = [tree.node(t, key) for key in change.erase]
    if not named or not change.conversation:
        return set(named)
    routes, head = names.routes(t, change.conversation.id), tree.node(t, change.conversation.head)
    return {*named, *(n for gone in named for n in tree.left_behind(t, gone, routes, head))}
