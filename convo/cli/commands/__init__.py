"""One module a command: arguments, options and help.

The implementation, `convo.cli.NAME`, is imported when the command runs: help and completion load nothing else.
"""
