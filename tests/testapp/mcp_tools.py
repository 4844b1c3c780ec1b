"""Tools, resources, prompts and completions of the test project."""

from mcp_django import Context, completion, prompt, resource, tool
from tests.testapp.models import Book


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(permission="testapp.view_book")
async def count_books() -> int:
    """Count the books."""
    return await Book.objects.acount()


@tool(permission="testapp.delete_book", scopes=["books:write"])
async def delete_book(title: str, ctx: Context) -> str:
    """Delete a book, when the client's human agrees.

    Args:
        title: The book's whole title.
    """
    if not await ctx.elicit(f"Delete {title}?", key="confirm"):
        return "Kept."
    deleted, _kinds = await Book.objects.filter(title=title).adelete()
    return f"Deleted {deleted}."


@resource("book://{title}", mime_type="text/plain")
async def read_book(title: str) -> str:
    """A book, by its title."""
    book = await Book.objects.aget(title=title)
    return f"{book.title}, {book.pages} pages"


@prompt
def recommend(title: str) -> str:
    """Ask for books like one that was liked."""
    return f"Which books are like {title}?"


@completion("recommend", "title")
async def complete_title(value: str) -> list[str]:
    """Titles that begin so."""
    return [book.title async for book in Book.objects.filter(title__istartswith=value)[:100]]
