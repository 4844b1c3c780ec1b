"""What goes wrong with a server of others."""


class ClientError(Exception):
    """Something went wrong with a server."""


class ClientConnectionError(ClientError):
    """The server cannot be reached, or the connection to it ended."""
