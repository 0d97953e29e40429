"""Screens are compared as text, so times are shown in UTC."""

from tests.utc_timezone import utc_timezone

__all__ = ["utc_timezone"]
