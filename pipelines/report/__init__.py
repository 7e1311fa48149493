"""Reports on a lake: tables computed from the decoded tables when somebody asks, and pages for people."""
