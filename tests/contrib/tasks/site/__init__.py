"""A project with tasks, for processes of their own."""
