"""Runs stages: in worker processes of this machine, in a session of Spark, with deltalake in this process."""
