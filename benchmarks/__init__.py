"""Measurements of this server, the official SDK, FastMCP and bare HTTP.

README.md explains how to run and read them. They report figures, and no figure makes a build fail.
"""
