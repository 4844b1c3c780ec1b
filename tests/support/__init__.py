"""Test support that several folders share.

Support that only one folder uses is in that folder.
"""
