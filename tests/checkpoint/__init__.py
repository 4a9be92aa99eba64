"""The helper that jobs use."""
