"""Servers that send endless data: limits of responses, memory use, and the latency of other clients."""
