"""Models with columns and relations of other packages. They have no migrations: their tables are made for the tests."""
