"""The app whose tools the workers of these tests serve, beside those of `tests.servers.site`."""
