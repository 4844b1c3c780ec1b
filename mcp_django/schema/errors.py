"""The three errors of schemas, by the party at fault.

    ArgumentError      the caller: arguments or form content that violate the advertised schema
    OutputError        the handler: a result that violates the advertised output schema
    DeclarationError   the author: a signature or schema that cannot be used, found at registration

None of them is a protocol error. The server turns the first into a tool result or an invalid-params error, logs the
second as a bug, and reports the third when the project starts.
"""


class ArgumentError(ValueError):
    """Invalid arguments.

    The text names the argument and the rule, for a language model.
    """


class OutputError(Exception):
    """A result that violates the output schema of its own tool.

    It is a bug, so its text is for the log only.
    """


class DeclarationError(Exception):
    """An unusable signature or schema.

    The text names the function, the parameter and the remedy.
    """
