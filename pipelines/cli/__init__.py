"""The command line: commands, settings, options, errors, and the text that a person reads."""
