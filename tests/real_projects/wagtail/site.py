"""Rows and users of the site, and the rows that Django's permissions show them."""

from typing import Any

from django.contrib.auth.models import User
from wagtail.models import Collection, Page

from mcp_django.contrib.rest import add_session, expose_router
from tests.real_projects.django_permissions import add_readers, get_visible_rows
from tests.real_projects.population import add_rows, list_kinds
from tests.real_projects.site import Site, ViewList
from tests.real_projects.wagtail.api import ENDPOINTS, api_router
from tests.real_projects.wagtail.models import Author, StoryLink, StoryPage, StoryTag

TREES = (Page, Collection, StoryPage, StoryTag, StoryLink)
"""Models whose rows have a place in a tree, or below a page."""


def build_site() -> Site:
    """Return the site, with its rows."""
    kinds = list_kinds()
    add_pages()
    errors = add_rows([kind for kind in kinds if not issubclass(kind, TREES)])
    users = add_readers(User, kinds)
    return Site(
        kinds=kinds,
        users=users,
        get_visible_rows=get_visible_rows,
        errors=errors,
        expose_views=expose_views,
    )


def expose_views() -> list[ViewList]:
    """Expose the router of Wagtail's API in one line, and return its lists."""
    expose_router(api_router, server="views", prepare=set_router, decorated=True)
    return [ViewList(tool=f"{name}_listing_view", path=f"/api/v2/{name}/") for name in ENDPOINTS]


def set_router(request: Any) -> None:
    """Set the attributes of requests that the wrappers of Wagtail's router and the middleware set."""
    add_session(request)
    request.wagtailapi_router = api_router


def add_pages() -> None:
    """Add stories below the home page, and collections."""
    home = Page.objects.get(slug="home")
    author = Author.objects.create(name="Ada")
    for number in range(12):
        body = [
            ("heading", f"Part {number}"),
            ("text", "<p>Some <b>text</b></p>"),
            ("quote", {"text": "Words", "source": ""}),
            ("numbers", [1, 2, number]),
        ]
        story = StoryPage(
            title=f"Story {number}", slug=f"story-{number}", body=body, author=author, live=number % 3 > 0
        )
        story.links = [StoryLink(title="Link", url="https://example.com")]
        home.add_child(instance=story)
        story.tags.add("news", f"tag-{number % 3}")
        story.save()
    root = Collection.get_first_root_node()
    for number in range(4):
        root.add_child(name=f"Collection {number}")
