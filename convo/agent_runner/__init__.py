"""Runs of agents over one conversation.

Read `runner` for the public API of a run, `loop` for the effects and `persistence` for the commit
of each step. The state machine itself is `convo.runs`.
"""
