"""The demo. Its settings are not the tests', so it runs in processes of its own, with a directory of its own."""
