"""A small project with every classic mistake; `tests.test_deploy_checks` runs the checks on it."""
