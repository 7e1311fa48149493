"""A lake in DuckDB: its tables, views and functions by their plain names, in this process, read-only.

``database`` opens one, ``views`` makes the views of ``pipelines.views`` there, ``functions`` the functions
of ``udfs``; ``macros.sql`` has Spark's functions that DuckDB lacks, ``tokens`` what it reads otherwise.
"""
