"""The wire: messages, headers, content and the five revisions, as values.

Pure: bytes and values in, values and bytes out. Nothing here imports Django, asyncio or a socket, and nothing here
re-exports; import the module that has the name.
"""
