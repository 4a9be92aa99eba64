"""Tidegate: a burst-aware batch scheduler whose past, present and future run through one kernel."""

__version__ = "0.1.0"
