"""Moves conversations: to another owner, into a file, out of somebody else's file.

Read `taking` for what a source holds when its owner and its record are laid together, `handing` for
how another owner comes to hold it, `document` for the one value that every file is written from and
read back to. What cannot go over is decided in `convo.strategies.carrying`.
"""
