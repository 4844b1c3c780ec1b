"""An opt-in app that keeps conversations and facts of callers: add "mcp_django.contrib.memory" to INSTALLED_APPS.

What is kept belongs to the call's principal (`Principal.owner`), never to a user that a client names. The app is a
guest of the package: everything in it is written against the public names of `mcp_django`.
"""
