"""The protocol engine: turns the bytes of a message into the bytes of a response.

It is free of Django and of I/O. Everything it needs from outside comes through `ports`.
"""
