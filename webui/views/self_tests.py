"""What the engine's self-tests found: which failed, which are about what this model is, and how requests run together.

It words nothing.
"""

from typing import Literal

from control.wire import EngineView, SelfTest

# How running requests are computed: each in its own row, padded to the longest, or one after another.
Together = Literal["rows", "padded", "turns"]


def failed_tests(engine: EngineView) -> dict[str, SelfTest]:
    """By name, those that did not pass though they could have."""
    return {test.name: test for test in applied_tests(engine) if not test.passed}


def applied_tests(engine: EngineView) -> tuple[SelfTest, ...]:
    """Without those of what the model is not made for."""
    return tuple(test for test in engine.self_tests if test.is_supported)


def unsupported_tests(engine: EngineView) -> tuple[str, ...]:
    return tuple(test.name for test in engine.self_tests if not test.is_supported)


def together(engine: EngineView) -> Together | None:
    """None before the layout is chosen."""
    if engine.layout is None:
        return None
    if engine.layout.kind == "rows":
        return "rows"
    return "turns" if any(test.name == "padded" and not test.passed for test in engine.self_tests) else "padded"
