"""Runs agents over one conversation.

Read `runner` for what can be done with a run, `loop` for how its effects are performed and
`persistence` for what each step makes durable. The state machine itself is `convo.runs`.
"""
