"""stored_by_0_1."""
