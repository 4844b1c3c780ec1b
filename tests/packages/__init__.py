"""Behaviour of the package beside packages of others that projects use, each with its real release.

These tests have settings of their own, because the apps, backends and middleware of those packages change every project
that installs them: `make packages`, or `pytest --ds tests.packages.settings tests/packages`.
"""
