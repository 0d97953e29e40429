"""A tool, not tests of behaviour: measurements of time, memory, counts and disk space of checkouts."""
