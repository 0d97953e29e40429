"""Runs of agents over a conversation."""
