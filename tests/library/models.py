"""A library, as an API shows it."""

from django.conf import settings
from django.db import models


class Author(models.Model):
    name = models.CharField(max_length=50)
    country = models.CharField(max_length=2, blank=True, help_text="ISO 3166")

    def __str__(self) -> str:
        return self.name

    @property
    def initials(self) -> str:
        return "".join(word[0] for word in self.name.split())


class Book(models.Model):
    class Genre(models.TextChoices):
        NOVEL = "n", "Novel"
        POEM = "p", "Poem"

    isbn = models.CharField(max_length=13, unique=True)
    title = models.CharField(max_length=80)
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    genre = models.CharField(max_length=1, choices=Genre, default=Genre.NOVEL)
    price = models.DecimalField(max_digits=6, decimal_places=2)
    pages = models.PositiveIntegerField(null=True, blank=True)
    published = models.DateField(null=True, blank=True)
    extra = models.JSONField(default=dict, blank=True)
    cover = models.FileField(upload_to="covers", blank=True)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="+")

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.title


class Review(models.Model):
    book = models.ForeignKey(Book, on_delete=models.CASCADE, related_name="reviews")
    stars = models.IntegerField()
    text = models.TextField(blank=True)

    def __str__(self) -> str:
        return f"{self.stars} for {self.book}"
