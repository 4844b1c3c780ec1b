"""Side-by-side measurements of this server, the official SDK, FastMCP and the bare cost of HTTP.

README.md says how to run and read them. It reports and never judges: no figure here makes a build fail.
"""
