"""Kafka's rules, each once: in SQL that both engines run, and in Python where no engine runs.

A ``.sql`` file is a view like those in ``pipelines.views``. A test holds SQL and Python to one model.
"""

# Which rows of ``batches`` count, for what reads the table without the view ``counted_batches``
COUNTED = "status IN ('ok', 'suspect')"
