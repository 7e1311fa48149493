"""The command line and what it needs: commands, settings, options, errors, the Spark session."""
