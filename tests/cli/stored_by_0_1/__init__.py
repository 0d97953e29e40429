"""A store and files that version 0.1.0 wrote; see README.md."""
