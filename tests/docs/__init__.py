"""Checks of the documentation against the program: transcripts, the reference and the pictures."""
