"""Transfer of conversations: convert, compact, race, import and export.

Read `convert` first. `convo.strategies.conversion` decides which items can be transferred.
"""
