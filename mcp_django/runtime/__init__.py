"""What the engine needs from Django: threads for blocking work, sessions as rows, keys that seal."""
