import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="Author",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=50)),
                ("country", models.CharField(blank=True, help_text="ISO 3166", max_length=2)),
            ],
        ),
        migrations.CreateModel(
            name="Book",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("isbn", models.CharField(max_length=13, unique=True)),
                ("title", models.CharField(max_length=80)),
                ("genre", models.CharField(choices=[("n", "Novel"), ("p", "Poem")], default="n", max_length=1)),
                ("price", models.DecimalField(decimal_places=2, max_digits=6)),
                ("pages", models.PositiveIntegerField(blank=True, null=True)),
                ("published", models.DateField(blank=True, null=True)),
                ("extra", models.JSONField(blank=True, default=dict)),
                ("cover", models.FileField(blank=True, upload_to="covers")),
                (
                    "author",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="books", to="library.author"
                    ),
                ),
                (
                    "owner",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="Review",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("stars", models.IntegerField()),
                ("text", models.TextField(blank=True)),
                (
                    "book",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="reviews", to="library.book"
                    ),
                ),
            ],
        ),
    ]
