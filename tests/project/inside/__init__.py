"""Tests that run under the demo's own settings, started by `test_settings.py`."""
