"""``pc`` is ``pyarrow.compute``, loaded when a function of it is called first.

Its import makes a Python function of each of Arrow's functions, in 60 ms: a tenth of a short command, which
may call none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.compute as pc
else:

    class _AtFirstCall:
        def __getattr__(self, name: str) -> Any:
            import pyarrow.compute as functions

            function = getattr(functions, name)
            setattr(self, name, function)
            return function

    pc = _AtFirstCall()

__all__ = ["pc"]
