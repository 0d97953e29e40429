"""Settings: seven layers of values, and the paths of convo's files.

Read `settings` first (the result, and which model a name means), then `loader` (files, variables and
flags become `Settings`) and `schema` (what a settings file may contain).
"""
