"""The app whose tools the workers of these tests serve."""
