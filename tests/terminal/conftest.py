"""Screens are compared as text, so their times stand still."""

from tests.greenwich import greenwich

__all__ = ["greenwich"]
