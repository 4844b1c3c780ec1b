"""Client of a server in the same process: its profile, its messages, rounds, pages and tasks."""
