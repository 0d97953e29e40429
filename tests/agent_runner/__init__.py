"""Tests of agent runs on conversations."""
