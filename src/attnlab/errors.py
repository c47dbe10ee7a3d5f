"""The one kind of error a user is meant to read, and what is none."""


class UserError(Exception):
    """Something the user can mend: one line that names the thing and the mend.

    Commands print the message without a stack trace and exit with 1. Anything else that is raised is a
    fault of the program.
    """


class InterruptedRunError(BaseException):
    """The run was asked to stop: nothing is wrong, and the same command goes on.

    As with KeyboardInterrupt, no `except Exception` on its way may take it for a fault.
    """
