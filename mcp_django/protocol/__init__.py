"""The wire protocol as values: messages, headers, content and the five revisions.

The package is pure: its functions map bytes and values to values and bytes. It imports neither Django nor asyncio nor
sockets. It re-exports no names; import the module that defines a name.
"""
