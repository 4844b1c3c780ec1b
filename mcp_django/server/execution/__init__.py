"""Execution of user code: permissions, lists, calls and sampling tools."""
