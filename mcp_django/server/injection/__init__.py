"""Parameters of handlers that the server fills in."""
