"""Decodes keys and values into typed tables, and keeps tables of them.

``job`` compares the data files of ``records`` with those of the typed tables, has what is missing decoded,
and commits each table once. Kept tables (``kept``) are the newest row of each key (``latest``) and what
Debezium's change events make of a source table (``cdc``): made in DuckDB of a topic's typed table and of what
READ_COMMITTED consumers get, and committed as one new version each.
"""
