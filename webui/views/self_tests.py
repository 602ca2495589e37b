"""What the engine's self-tests found: which failed, which are about what this model is, and how requests run together.

It words nothing.
"""

from typing import Final, Literal

from control.wire import EngineView, SelfTest

# How running requests are computed: each in its own row, padded to the longest, or one after another.
Together = Literal["rows", "padded", "turns"]

_LAYOUTS: Final = ("rows", "padded")
# How the detail begins when a layout was not tried at all: a model of that kind has none.
# Source: LayoutUnsupported in engine.rows and engine.padded.
_UNSUPPORTED: Final = ("no rows for caches", "no merging for caches", "the model does not call")


def failed_tests(engine: EngineView) -> dict[str, SelfTest]:
    """By name, those that did not pass though they could have."""
    return {test.name: test for test in engine.self_tests if not test.passed and not _is_not_for_this_model(test)}


def applied_tests(engine: EngineView) -> tuple[SelfTest, ...]:
    """Without the layouts that the model is not made for."""
    return tuple(test for test in engine.self_tests if not _is_not_for_this_model(test))


def unsupported_layouts(engine: EngineView) -> tuple[str, ...]:
    return tuple(test.name for test in engine.self_tests if _is_not_for_this_model(test))


def together(engine: EngineView) -> Together | None:
    """None before the layout is chosen."""
    if engine.layout is None:
        return None
    if engine.layout.kind == "rows":
        return "rows"
    return "turns" if any(test.name == "padded" and not test.passed for test in engine.self_tests) else "padded"


def _is_not_for_this_model(test: SelfTest) -> bool:
    return not test.passed and test.name in _LAYOUTS and test.detail.startswith(_UNSUPPORTED)
