"""A small app that the tests serve."""
