"""Kafka's rules, each once: in SQL that both engines run, and in Python where no engine runs.

A ``.sql`` file is a view like those in ``pipelines.views``. A test holds SQL and Python to one model.
"""
