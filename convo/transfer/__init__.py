"""Moves conversations: to another owner, into a smaller window, into a file, out of somebody else's file.

    taking      what a source holds, when its owner and its record are laid together
    handing     how another owner comes to hold it; `in_chat` does that to a chat that is open
    seeding     a new conversation with a history in it; `beside` writes every new session
    compacting  a smaller history in place of a larger one; `branches`, `summing` and `shortening` beside it
    racing      the same turns under every owner, one after the other
    writing     each form of a file; what a page looks like stands in `convo.pages`
    reading     each form back; `run_states`, and `databases`: `agents_sessions` of the Agents SDK, `llm_logs`
                of `llm` in its older layout (`llm_responses`) and its newer (`llm_messages`, `llm_attached`)
    keeping     what was read becomes a session

The one value between files and sessions is `convo.inspection.document`. What cannot go over is decided
in `convo.strategies.carrying`, what is a secret in `convo.inspection.secrets`.
"""
