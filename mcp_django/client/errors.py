"""What goes wrong with a server of others."""


class ClientError(Exception):
    """Something went wrong with a server."""


class ClientConnectionError(ClientError):
    """The server cannot be reached, or the connection to it ended."""


class AuthorizationNeeded(ClientConnectionError):
    """The server wants a person's permission first: `url` is where to give it, `alias` the client's name."""

    def __init__(self, message: str = "", alias: str | None = None, url: str | None = None) -> None:
        super().__init__(message or "This server has not been allowed yet.", alias, url)
        self.alias, self.url = alias, url

    def __str__(self) -> str:
        return str(self.args[0])
