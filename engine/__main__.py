"""The engine's command line: `serve` (the default), `plan`, `models` and `fetch`; the exit codes that control reads.

It does none of the work. A refusal is one sentence, the last line on stderr; with --json also an ErrorAnswer on stdout.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import platformdirs

from engine.errors import DeviceFailed, EngineError, ModelRefused, PortTaken, Refused

EXIT_CODES: dict[type[EngineError], int] = {Refused: 4, PortTaken: 5, DeviceFailed: 70}


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.command == "plan":
            _plan(parsed)
        elif parsed.command == "models":
            _models(parsed)
        elif parsed.command == "fetch":
            _fetch(parsed)
        else:
            _serve(parsed)
    except EngineError as error:
        if getattr(parsed, "json", False):
            print(_refusal_as_json(error))
        print(error.message, file=sys.stderr)
        return next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)
    return 0


def _parser() -> argparse.ArgumentParser:
    home = argparse.ArgumentParser(add_help=False)
    home.add_argument("--home", type=Path, default=_usual_home(), help="where made and downloaded models are")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="answer in JSON")
    parser = argparse.ArgumentParser(prog="python -m engine", description="The inference engine of Splash.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve the model of the launch file (the default)")
    serve.add_argument("--home", type=Path, required=True, help="SPLASH_HOME, with the launch file in it")
    plan = commands.add_parser("plan", parents=[home, as_json], help="say what a model needs, without loading it")
    plan.add_argument("--model", required=True, help="a folder, a hub id, or a name that `models` lists")
    plan.add_argument("--context", type=int, metavar="TOKENS")
    plan.add_argument("--budget", type=_size, metavar="SIZE", help="memory for contexts: bytes, or 12GiB")
    plan.add_argument("--kv-bits", type=int, choices=(8, 4), help="quantise keys and values")
    fetch = commands.add_parser("fetch", parents=[home], help="download a model; progress is JSON, one object a line")
    fetch.add_argument("--model", required=True, help="a hub id")
    models = commands.add_parser("models", parents=[home, as_json], help="list the models on this machine")
    models.add_argument("--folder", type=Path, action="append", default=[], help="look here too; may be repeated")
    return parser


def _size(text: str) -> int:
    from engine.memory_text import bytes_of

    try:
        return bytes_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _usual_home() -> Path:
    """As in `control.config`, for a person who asks without control."""
    named = os.environ.get("SPLASH_HOME")
    return Path(named).expanduser() if named else Path(platformdirs.user_data_dir("Splash", appauthor=False))


def _serve(parsed: argparse.Namespace) -> None:
    from engine.kernel_cache import keep_kernels_private, usual_folder
    from engine.process import serve

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for chatty in ("uvicorn", "httpx", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    keep_kernels_private(usual_folder())
    serve(parsed.home.absolute())


def _plan(parsed: argparse.Namespace) -> None:
    from engine.report import plan_model

    report = plan_model(
        parsed.model, parsed.home, context=parsed.context, budget_bytes=parsed.budget, kv_bits=parsed.kv_bits
    )
    print(report.as_json() if parsed.json else report.as_text())


def _models(parsed: argparse.Namespace) -> None:
    from engine.report import list_models

    report = list_models(parsed.home, [folder.expanduser().absolute() for folder in parsed.folder])
    print(report.as_json() if parsed.json else report.as_text())


def _fetch(parsed: argparse.Namespace) -> None:
    from engine.model.library import resolve
    from engine.wire import LoadProgress

    def tell(bytes_done: int, bytes_total: int) -> None:
        progress = LoadProgress(bytes_read=bytes_done, bytes_total=bytes_total)
        # One write, so that lines of several threads stay whole.
        sys.stdout.write(msgspec.json.encode(progress).decode() + "\n")
        sys.stdout.flush()

    resolve(parsed.model, parsed.home, on_progress=tell)


def _refusal_as_json(error: EngineError) -> str:
    """For programs that must tell a model that is not there from one that is no good."""
    from engine.wire import ErrorAnswer

    reason, native = (error.reason, error.native_tokens) if isinstance(error, ModelRefused) else (None, None)
    answer = ErrorAnswer(code=error.code, message=error.message, maximum_context_tokens=native, reason=reason)
    return msgspec.json.encode(answer).decode()


def _with_default(arguments: Sequence[str]) -> list[str]:
    """`python -m engine --home DIR` serves."""
    return ["serve", *arguments] if arguments and arguments[0].startswith("--home") else list(arguments)


if __name__ == "__main__":
    code = main(_with_default(sys.argv[1:]))
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: it would wait for a download or a hung device, and free the device's objects on the wrong thread.
    os._exit(code)
