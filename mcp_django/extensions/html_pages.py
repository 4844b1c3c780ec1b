"""HTML pages for users: forms of an extension, links that a question sends, previews.

They have no script and no inline style, stay out of caches and frames, and show no invisible characters: names of
clients, of other servers and of models could hold some.
"""

from mcp_django.html_pages import (
    add_security_headers,
    build_login_url,
    clean_html,
    clean_views,
    get_static_source,
    render_clean,
    render_html,
)

__all__ = [
    "add_security_headers",
    "build_login_url",
    "clean_html",
    "clean_views",
    "get_static_source",
    "render_clean",
    "render_html",
]
