"""Screens are compared as text, so their times stand still."""

from tests.utc_timezone import utc_timezone

__all__ = ["utc_timezone"]
