"""Transports turn requests into decoded messages with a Connection, and answers into bytes. They know no method
names.
"""
