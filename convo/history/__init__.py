"""A conversation is a path in a tree.

Read `tree` first: how places in a history are named, and what a path is; `prefix` lets the paths of
one conversation share their nodes. `compare` tells two histories apart, `link` is one model call and
`remembered` what of its request may be kept, `owner` says who may hold a head and where its handle means
something, `session` is the local record of a chat.
"""

from convo.history.compare import Difference, common, first_difference, same
from convo.history.link import Link
from convo.history.owner import HERE, OWNERS, Owner, Scope, Strategy
from convo.history.prefix import Prefix
from convo.history.remembered import IGNORED, OURS, PROVIDER, honoured, requested, storable
from convo.history.session import Session
from convo.history.tree import Key, Node, Path, child, root

__all__ = [
    "HERE",
    "IGNORED",
    "OURS",
    "OWNERS",
    "PROVIDER",
    "Difference",
    "Key",
    "Link",
    "Node",
    "Owner",
    "Path",
    "Prefix",
    "Scope",
    "Session",
    "Strategy",
    "child",
    "common",
    "first_difference",
    "honoured",
    "requested",
    "root",
    "same",
    "storable",
]
