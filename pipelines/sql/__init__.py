"""Opens a lake in DuckDB: tables, views and functions by their plain names, in this process, read-only.

``database`` opens one, ``functions`` makes the functions of ``udfs`` there, ``statements`` the views of
``pipelines.views``, and what DuckDB reads otherwise; ``macros.sql`` has Spark's functions that DuckDB lacks.
"""
