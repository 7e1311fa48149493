"""Decoders as ``conformance/run.py`` calls them, one a module."""
