"""Tools, resources, prompts and completions: declarations, registries, results."""
