"""Commands of the tasks."""
