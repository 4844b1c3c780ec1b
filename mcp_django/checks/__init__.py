"""System checks of the installation, the settings and the declarations.

E001  the distribution mcp-django is installed, which has a package of the same name
E002  an unknown key of MCP
E003  an invalid value of MCP
E004  a declaration that cannot be registered
E005  asgiref is too old for sync handlers
E006  a declaration for a server that the setting lacks
E007  a dotted path of MCP that cannot be imported, or is not a verifier
E008  MCP names a channel layer that CHANNEL_LAYERS lacks
E009  a model toolset uses a database or a relation that does not exist
E020  a view given to mcp_django.contrib.rest that it cannot call
E030  the issuer of the authorization server is invalid or not encrypted
E031  a setting of django-oauth-toolkit that weakens tokens
E032  django-oauth-toolkit is not installed, or has another version
E033  the authorization server is not served, or the toolkit's views replace it
E034  "oauth" in AUTH without the app that issues the tokens
E040  "external" in AUTH without an identity provider in ISSUERS
E041  "external" in AUTH without the required packages
E042  "session" in AUTH without sessions in MIDDLEWARE
E043  a server whose URL is invalid as a resource, or used by another server
E044  MCP names a cache that CACHES lacks
E050  MCP["CLIENTS"] without the packages of the client
E051  credentials for a server are sent over the network without encryption
E060  a mount, proxy or extension that cannot be created
E061  two sources of a server use the same name
E062  the alias or the queue of tasks is not in `TASKS`
E063  the template of an app is missing or fails
E064  a tool names an app that its server lacks
E065  a tool that hides the one by which apps answer questions
E070  no rows are served, because the project does not state the meaning of object permissions
W001  every request is refused: neither AUTH nor DEBUG is set
W002  AUTH = "none" without DEBUG
W003  no channel layer, or one limited to a single process (with --deploy)
W004  SQLite with settings that fail under concurrent writes (with --deploy)
W005  persistent connections that accumulate under ASGI (with --deploy)
W006  a connection pool with fewer connections than threads (with --deploy)
W007  any logged-in user may register OAuth clients
W008  an endpoint with a repeated path, as in /mcp/mcp
W009  a path of a toolset to a field that its server does not serve
W010  a toolset that requires a permission which Django does not create
W011  a declaration that requires a permission which no installed app defines
W012  an attribute of a toolset that is a misspelt option or hook
W013  a declaration that reads rows, while the database does not have them
W014  a required column that new rows of a toolset lack
W020  DEBUG is on, and relaxes security (with --deploy)
W021  an origin without encryption (with --deploy)
W022  any Host is accepted (with --deploy)
W023  rates are counted in each process separately (with --deploy)
W024  verified principals are cached in each process separately (with --deploy)
W025  a credential is cached for long (with --deploy)
W026  all clients behind a proxy share one address (with --deploy)
W030  the issuer has another origin than the endpoint
W031  an access token has a long lifetime (with --deploy)
W032  OpenID Connect is on
W033  the authorization server is installed, but its tokens are not accepted
W034  LOGIN_URL does not resolve, although users have to log in
W040  an identity provider whose tokens fit no server
W041  ISSUERS or SESSION_SCOPES without "external" or "session" in AUTH
W042  AUDIENCES of an identity provider for an unknown server
W043  a scope that SCOPES does not declare
W044  personal access tokens that can do nothing (with --database)
W045  service accounts without an owner (with --database)
W046  service accounts with a password or access to the admin (with --database)
W050  the working directory of a program does not exist
W051  a program is not installed
W052  a client that needs users' authorization, without its pages in the URLconf
W060  a tool declares task=, and its server has no extension for tasks
W061  a tool has an app, and its server has no extension for apps
W062  a tool for apps only, which all callers may call
W063  the page of an app loads a file that clients block
W064  the page of an app is large
W065  an app that no tool shows
W066  a tool that a host refuses
W067  tasks go to Celery's default broker, because the app of the project is not imported
W070  a toolset that does not extend the base class of the project
W071  toolsets require permissions that the user model does not have
I001  RedisChannelLayer, where RedisPubSubChannelLayer is more robust (with --deploy)
I002  middleware that keeps a thread for each running call of the Django view (with --deploy)
I003  lists of a toolset in an order without an index (with --deploy)
I004  a large list of tools, most of which are tools of single models

docs/reference/checks.md describes each of them. Only W044 to W046 query a database, and none fails on invalid
settings: Django, E002 and E003 report those.
"""

from mcp_django.checks import (
    authentication,
    channel_layers,
    clients,
    databases,
    declarations,
    deployment,
    installation,
    issuers,
    permissions,
    resources,
    settings,
    tokens,
    toolsets,
    urls,
)

__all__ = [
    "authentication",
    "channel_layers",
    "clients",
    "databases",
    "declarations",
    "deployment",
    "installation",
    "issuers",
    "permissions",
    "resources",
    "settings",
    "tokens",
    "toolsets",
    "urls",
]
