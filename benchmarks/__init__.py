"""Side-by-side measurements of this server, the official SDK, FastMCP and the bare cost of HTTP.

README.md explains how to run and read them. They report figures, and no figure makes a build fail.
"""
