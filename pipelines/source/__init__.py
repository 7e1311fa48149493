"""Resolves ``--source`` and lists the segments there."""
