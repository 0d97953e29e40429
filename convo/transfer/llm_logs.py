"""The logs of `llm`: its conversations as histories of items.

Two layouts are known. Since 0.36 a thread points at the last of a chain of messages, each made of
parts; before, each response of a conversation had its prompt and its words in columns of its own. A
database may have both, and a conversation that stands in both is read from the newer one.

    threads -> messages (by parent_hash) -> parts, with attachments and fragments beside them
    conversations -> responses -> tool_calls, tool_results, prompt_fragments, prompt_attachments

What only its server can use again is left out: reasoning without words, calls that the server ran.
source: llm/migrations.py and llm/logs.py of llm 0.36
"""

from typing import TYPE_CHECKING

from convo.inspection.document import Document
from convo.transfer import llm_messages, llm_responses

if TYPE_CHECKING:
    from convo.transfer.databases import Database


def documents(database: "Database") -> list[Document]:
    """Every conversation that says something, oldest first."""
    new = llm_messages.threads(database) if "threads" in database.tables else {}
    old = llm_responses.conversations(database, besides=new)
    found = [document for document in (*old.values(), *new.values()) if document.items]
    return sorted(found, key=lambda document: document.created_at or 0)
