"""Typed tables: the keys and values of a lake's topics by the schema registry that lies in the lake.

``schemas`` finds the registry and keeps the table ``schemas``; ``job`` compares the data files of ``records``
with those of the typed tables, has what is missing decoded, and commits each table once.
"""
