"""System checks: what is wrong with the installation, the settings and the declarations.

E001  the distribution mcp-django is installed, which has a package of the same name
E002  a key of MCP that means nothing
E003  a value of MCP that cannot be used
E004  a declaration that could not be registered
E005  asgiref is older than what sync handlers need
E006  something is declared for a server that the setting does not have
E007  a dotted path of MCP that cannot be imported
E008  the channel layer that MCP names is not described
E009  a toolset of a model reads from a database, or by a relation, that there is not
E020  a view that mcp_django.rest was given and cannot call
W001  without AUTH and without DEBUG every request is refused
W002  AUTH = "none" without DEBUG
W003  no channel layer, or one that reaches one process only (with --deploy)
W004  SQLite with settings that concurrent writers trip over (with --deploy)
W005  persistent connections that pile up under ASGI (with --deploy)
W006  a connection pool with fewer connections than there are threads for them (with --deploy)
W007  whoever logs in may register OAuth clients
W008  an endpoint whose path is doubled, as in /mcp/mcp
W009  a path of a toolset that leads to nothing its server shows
W010  a toolset that takes a permission which Django does not make
I001  RedisChannelLayer, where RedisPubSubChannelLayer is sturdier (with --deploy)
I002  middleware that costs each running call of the Django view a thread (with --deploy)
I003  lists of a toolset in an order that no index has (with --deploy)

docs/reference/checks.md says more about each. None of them opens a connection to a database, and none fails on
settings that are broken: those are reported by Django, or by E002 and E003.
"""

from . import authentication, channel_layers, databases, declarations, installation, settings, toolsets, urls

__all__ = [
    "authentication",
    "channel_layers",
    "databases",
    "declarations",
    "installation",
    "settings",
    "toolsets",
    "urls",
]
