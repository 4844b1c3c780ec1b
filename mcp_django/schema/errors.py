"""The three ways a schema can fail, by whose mistake it is.

    ArgumentError      the caller's: arguments or form content that break the advertised schema
    OutputError        the handler's: a result that breaks the advertised output schema
    DeclarationError   the author's: a signature or schema that cannot be served, found at registration

None of them is a protocol error; the server turns the first into a tool result or an invalid-params error, logs
the second as a bug, and reports the third when the project starts.
"""


class ArgumentError(ValueError):
    """Arguments that break their schema; the text names argument and rule and is written for a language model."""


class OutputError(Exception):
    """A result that breaks the output schema its own tool advertises; a bug, so its text is for the log only."""


class DeclarationError(Exception):
    """A signature or a schema that cannot be served; the text names function and parameter, and the cure."""
