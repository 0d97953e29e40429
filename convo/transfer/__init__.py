"""Transfer of conversations: convert, compact, race, import and export.

Read `convert` first. `convo.strategies.transfer` decides which items can be transferred.
"""
