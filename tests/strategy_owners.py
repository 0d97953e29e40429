"""The strategies by owner of the state."""

from convo.history.records import Strategy

CLIENT_OWNED = [Strategy.REPLAY, Strategy.SESSION]
SERVER_OWNED = [Strategy.CHAIN, Strategy.CONVERSATION]
