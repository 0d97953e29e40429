"""Settings: seven layers of values, and the paths of convo's files.

Read `settings` first (the declarations of the settings, and the model that a name means), then `loader` (files,
variables and flags become `Settings`) and `schema` (the allowed content of a settings file).
"""
