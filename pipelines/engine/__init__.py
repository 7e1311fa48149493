"""Two engines answer a statement: DuckDB in this process, and Spark.

``answer`` is the way without Java: ``text`` and ``translate`` turn a statement of Spark SQL into one of
DuckDB if every part of it is known to mean the same, ``names`` finds names that nothing has, ``snapshot``
opens the tables, ``duck`` runs the statement. ``spark`` is the way for all else. ``rows`` prints what either
of them gives.
"""
