"""The one adapter to Spark."""
