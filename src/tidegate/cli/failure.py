"""What a command raises instead of a traceback."""


class FailureError(Exception):
    """What the user is told: what is wrong, and what to do."""

    code = 1


class UsageError(FailureError):
    """The command line itself is wrong."""

    code = 2
