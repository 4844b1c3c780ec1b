"""The engine: bytes of a message in, bytes of an answer out. Free of Django and of I/O; what it needs comes through
`ports`.
"""
