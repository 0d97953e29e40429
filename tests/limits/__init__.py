"""Servers that send without end, and what an answer, a process and the other clients make of them."""
