"""Python imports this module when it starts, where its folder is on PYTHONPATH: nothing is flushed then."""

import os

os.fsync = lambda _: None
