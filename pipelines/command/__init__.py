"""What a person types, and what they are told: settings, options, exit codes, summary, session."""
