"""Permissions and authentication of DRF views that are called as tools."""
