"""Running user code: permissions, lists, calls and tools for sampling."""
