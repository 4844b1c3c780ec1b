"""Large public projects that adopt the package: django-oscar, Wagtail, pretix and NetBox.

`make real-projects` gives each project an environment of its own, and adds the package by the documented steps. It
exposes all models and views, and compares random operations of several users with the project's own answers.
"""
