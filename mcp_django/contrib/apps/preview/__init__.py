"""Preview of apps: a page that hosts them, offline, for developers and tests.

The page is a host in the sense of MCP Apps. Its views run in a frame with an opaque origin and the declared policy.
"""
