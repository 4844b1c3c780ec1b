"""Playground: lists of a server, forms for its tools, and calls from the admin as a chosen user."""
