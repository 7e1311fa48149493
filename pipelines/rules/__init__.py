"""Holds Kafka's rules over a lake's tables: in SQL that both engines run, in Python where no engine runs.

Each rule stands once. A ``.sql`` file is a view like those in ``pipelines.views``. A test holds SQL and
Python to one model.
"""

from importlib import resources

# Which rows of ``batches`` count: the condition of the view, for what reads the table without it
COUNTED = (
    resources.files(__name__).joinpath("counted_batches.sql").read_text().rpartition(" WHERE ")[2].strip()
)
