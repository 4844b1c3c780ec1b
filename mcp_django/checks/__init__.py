"""System checks: what is wrong with the installation, the settings and the declarations.

E001  the distribution mcp-django is installed, which has a package of the same name
E002  a key of MCP that means nothing
E003  a value of MCP that cannot be used
E004  a declaration that could not be registered
E005  asgiref is older than what sync handlers need
E006  something is declared for a server that the setting does not have
E007  a dotted path of MCP that cannot be imported, or leads to no verifier
E008  the channel layer that MCP names is not described
E009  a toolset of a model reads from a database, or by a relation, that there is not
E020  a view that mcp_django.contrib.rest was given and cannot call
E030  the issuer of the authorization server is none, or is not encrypted
E031  a setting of django-oauth-toolkit makes tokens weaker
E032  django-oauth-toolkit is not installed, or of another version
E033  the authorization server is not served, or the toolkit's views are in its place
E034  "oauth" in AUTH without the app that makes the tokens
E040  "external" in AUTH without an identity provider in ISSUERS
E041  "external" in AUTH without the packages that it takes
E042  "session" in AUTH where nobody can be logged in
E043  a server whose URL cannot name a resource, or names another's
E044  a cache that MCP names is not described
E050  MCP["CLIENTS"] without the packages that using a server takes
E051  credentials for a server go over the network without encryption
E060  a mount that cannot be made
E061  two sources of a server call something the same
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
W020  DEBUG is on, and opens what is closed otherwise (with --deploy)
W021  an origin that is not encrypted (with --deploy)
W022  any Host is taken (with --deploy)
W023  rates are counted where only one process looks (with --deploy)
W024  what processes have verified is shared where only one looks (with --deploy)
W025  a credential is believed for long (with --deploy)
W026  clients of a proxy count as one (with --deploy)
W030  the issuer is another origin's than the endpoint's
W031  an access token is good for long (with --deploy)
W032  OpenID Connect is on
W033  the authorization server is installed, and its tokens are not taken
W034  LOGIN_URL leads to nothing, and people have to log in
W040  an identity provider whose tokens can be meant for no server
W041  ISSUERS or SESSION_SCOPES without "external" or "session" in AUTH
W042  AUDIENCES of an identity provider for a server that there is not
W043  a scope that SCOPES does not declare
W050  a program is started in a directory that is not there
W051  a program is not found
W052  a server in use takes each user's permission, and the pages for it are not in the URLconf
I001  RedisChannelLayer, where RedisPubSubChannelLayer is sturdier (with --deploy)
I002  middleware that costs each running call of the Django view a thread (with --deploy)
I003  lists of a toolset in an order that no index has (with --deploy)

docs/reference/checks.md says more about each. None of them opens a connection to a database, and none fails on
settings that are broken: those are reported by Django, or by E002 and E003.
"""

from mcp_django.checks import (
    authentication,
    channel_layers,
    clients,
    composition,
    databases,
    declarations,
    deployment,
    installation,
    issuers,
    resources,
    settings,
    toolsets,
    urls,
)

__all__ = [
    "authentication",
    "channel_layers",
    "clients",
    "composition",
    "databases",
    "declarations",
    "deployment",
    "installation",
    "issuers",
    "resources",
    "settings",
    "toolsets",
    "urls",
]
