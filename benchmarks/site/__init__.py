"""The Django project that is measured: one app, one model, the tools of `servers/`."""
