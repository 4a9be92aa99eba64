"""What a command raises instead of a traceback."""


class FailureError(Exception):
    """What the user is told: what is wrong, and what to do."""
