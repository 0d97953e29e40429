"""Transfer of conversations: convert, compact, race, import and export.

Read `convert` first. What can be transferred is decided in `convo.strategies.transfer`.
"""
