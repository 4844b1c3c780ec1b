"""Page types of the site: blocks, parents, inline children and tags."""

from django.db import models
from modelcluster.contrib.taggit import ClusterTaggableManager
from modelcluster.fields import ParentalKey
from taggit.models import TaggedItemBase
from wagtail import blocks
from wagtail.fields import RichTextField, StreamField
from wagtail.models import Orderable, Page
from wagtail.snippets.models import register_snippet


@register_snippet
class Author(models.Model):
    """A snippet that pages refer to."""

    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class StoryTag(TaggedItemBase):
    """Tag of a story."""

    content_object = ParentalKey("StoryPage", related_name="tagged_items", on_delete=models.CASCADE)


class StoryPage(Page):
    """A page with blocks, rich text, an author and tags."""

    summary = RichTextField(blank=True)
    body = StreamField(
        [
            ("heading", blocks.CharBlock()),
            ("text", blocks.RichTextBlock()),
            ("quote", blocks.StructBlock([("text", blocks.TextBlock()), ("source", blocks.CharBlock(required=False))])),
            ("numbers", blocks.ListBlock(blocks.IntegerBlock())),
        ],
        blank=True,
    )
    author = models.ForeignKey(Author, null=True, blank=True, on_delete=models.SET_NULL)
    tags = ClusterTaggableManager(through=StoryTag, blank=True)


class StoryLink(Orderable):
    """A link below a story, in an order."""

    page = ParentalKey(StoryPage, related_name="links", on_delete=models.CASCADE)
    title = models.CharField(max_length=100)
    url = models.URLField(blank=True)
