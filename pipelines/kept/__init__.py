"""Kept tables: the newest row of each key, and what Debezium's change events make of a source table.

They are made of a topic's typed table and of what READ_COMMITTED consumers get, in DuckDB, and committed as
one new version each.
"""
