"""Every test of the project. Hypothesis: no deadlines, since the first call of a kernel compiles it."""

from hypothesis import settings

settings.register_profile("project", deadline=None, print_blob=True)
settings.load_profile("project")
