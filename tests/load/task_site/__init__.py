"""A project whose tools are tasks, run by workers that a test kills."""
