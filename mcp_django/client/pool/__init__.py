"""The clients that a process keeps: one for each alias, user and event loop."""
