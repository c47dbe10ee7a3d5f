"""Exceptions that commands handle."""


class UserError(Exception):
    """An error that the user can fix: one line that states the problem and the fix.

    Commands print the message without a stack trace and exit with 1. Any other exception is a bug.
    """


class InterruptedRunError(BaseException):
    """The run was interrupted by a signal, and the same command resumes it.

    Derived from BaseException, as KeyboardInterrupt is, so that no `except Exception` handles it as an error.
    """
