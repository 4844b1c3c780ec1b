"""Opt-in app that stores conversations and facts of callers.

Add "mcp_django.contrib.memory" to INSTALLED_APPS. Stored data belongs to the principal of the call (`Principal.owner`),
never to a user named by the client. The app uses only the public names of `mcp_django`.
"""
