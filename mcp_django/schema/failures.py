"""Failures of other code while a declaration is built.

A declaration depends on code of the project and of its packages: columns, forms, managers, properties, texts that are
translated late. `convert_failures` turns an exception of theirs into a DeclarationError. The code that registers or
lists declarations therefore handles one class of error, and one failure never affects other declarations.
"""

import contextlib
from collections.abc import Iterator

from mcp_django.schema.validation.validation import DeclarationError

MAX_FAILURE_CHARACTERS = 500
"""Maximum length of the text of a foreign exception, in characters."""


class DeclarationFailure(DeclarationError):
    """An exception of other code, raised while a declaration was built; it is the `__cause__`."""

    hint = (
        "Correct the code that raised it, or leave out its part of the declaration. Until then the declaration is not "
        "served. The logger mcp_django.server has the traceback at the level DEBUG."
    )

    def __init__(self, subject: str, error: BaseException) -> None:
        super().__init__(f"{subject} cannot be built: {describe_failure(error)}")
        self.subject = subject
        """The declaration, or the part of it that fails."""


@contextlib.contextmanager
def convert_failures(subject: str) -> Iterator[None]:
    """Convert exceptions of other code to a DeclarationFailure whose text begins with `subject`."""
    try:
        yield
    except DeclarationError:
        raise
    except Exception as error:
        raise DeclarationFailure(subject, error) from error


def describe_failure(error: BaseException) -> str:
    """Return the class and the text of an exception, on one line."""
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""  # the text is an object of other code, too
    name = type(error).__name__
    return f"{name}: {text[:MAX_FAILURE_CHARACTERS]}" if text else name
