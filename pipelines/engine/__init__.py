"""What runs stages: worker processes of this machine, a session of Spark, deltalake in this process."""
