"""Tools, resources, prompts and completions: declaration, registration and results."""
