"""Runs of the playground: its client, connection, rounds, questions and streams."""
