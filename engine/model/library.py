"""Where models are: from the name that a person gives to a folder on this machine, downloaded when need be.

It does not look into the files: `engine.model.preflight` does. It loads nothing.
"""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    IncompleteSnapshotError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from tqdm.auto import tqdm

from engine.errors import ModelNotFound, ModelRefused, NotDownloaded
from engine.model.demo import DEMO_NAME, MARKER, ensure_demo
from engine.model.files import is_file, read_bytes

OnProgress = Callable[[int, int], None]
"""Takes bytes done and bytes known to be wanted so far. Called on other threads."""

WANTED_FILES: Final = (
    "*.json",
    "*.jsonl",
    "*.jinja",
    "*.txt",
    "*.tiktoken",
    "model*.safetensors",
    "tokenizer.model",
    "tiktoken.model",
)
"""What mlx-lm reads of a repository, without the Python files: no code of a model is ever run."""

LM_STUDIO_FOLDERS: Final = ("~/.lmstudio/models", "~/.cache/lm-studio/models")

_DEMO_NAMES: Final = ("demo", DEMO_NAME)
_HUB_ID: Final = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
_REVISION: Final = re.compile(r"\w[\w.-]*")
_LARGEST_REFERENCE_BYTES: Final = 1_000
_SNAPSHOT: Final = re.compile(r"models--(?P<organisation>.+?)--(?P<name>.+)")


def resolve(name: str, home: Path, *, may_download: bool = True, on_progress: OnProgress | None = None) -> Path:
    """Return the folder of the model `name`: `demo`, a folder, a name in the list of models, or a hub id `org/name`.

    The demo is made and a hub id is downloaded when it is not here yet; a broken download goes on where it stopped.
    HF_ENDPOINT, HF_HUB_OFFLINE and HF_HOME hold. Raises ModelNotFound with one sentence; its kind NotDownloaded when
    only the leave to download is missing.
    """
    if name in _DEMO_NAMES:
        return ensure_demo(home)
    if name.startswith(("/", "~", ".")):
        return _existing_folder(name)
    for folder in _placed_by_hand(home):
        if model_name(folder) == name:
            return folder
    if _HUB_ID.fullmatch(name):
        return _from_hub(name, may_download=may_download, on_progress=on_progress)
    raise ModelNotFound(f"there is no model called {name}: give demo, a folder, or a hub id such as mlx-community/NAME")


def model_name(path: Path) -> str:
    """Return what a person calls the model in `path`: splash-demo, a hub id, or the folder's name."""
    if is_file(path / MARKER):
        return DEMO_NAME
    if path.parent.name == "snapshots" and (match := _SNAPSHOT.fullmatch(path.parent.parent.name)):
        return f"{match['organisation']}/{match['name']}"
    if any(path.parent.parent == Path(folder).expanduser() for folder in LM_STUDIO_FOLDERS):
        return f"{path.parent.name}/{path.name}"
    return path.resolve().name


def model_folders(home: Path, folders: Sequence[Path] = ()) -> Iterator[Path]:
    """Yield folders that have a config.json: home's, the hub's cache's, LM Studio's, and those in `folders`.

    Of home's all: what a person has put there is meant to be a model.
    """
    yield from _placed_by_hand(home)
    yield from _without_config(home / "models")
    yield from _with_config(_newest_snapshots(Path(constants.HF_HUB_CACHE)))
    for folder in folders:
        yield from _with_config((folder, *folder.glob("*")))


def _placed_by_hand(home: Path) -> Iterator[Path]:
    """Folders that are whole as they stand. A snapshot in the hub's cache may be half of a download."""
    yield from _with_config((home / "models").glob("*"))
    for lm_studio in LM_STUDIO_FOLDERS:
        yield from _with_config(Path(lm_studio).expanduser().glob("*/*"))


def _existing_folder(name: str) -> Path:
    folder = Path(name).expanduser()
    if not folder.exists():
        raise ModelNotFound(f"the folder {folder} does not exist")
    if not folder.is_dir():
        raise ModelNotFound(f"{folder} is a file; give the folder that it is in")
    return folder.absolute()


def _with_config(candidates: Iterator[Path] | Sequence[Path]) -> Iterator[Path]:
    return (
        folder for folder in sorted(candidates) if not folder.name.startswith(".") and is_file(folder / "config.json")
    )


def _without_config(models: Path) -> Iterator[Path]:
    """Folders there, and links to what is gone."""
    for folder in sorted(models.glob("*")):
        is_folder = folder.is_dir() or (folder.is_symlink() and not folder.exists())
        if is_folder and not folder.name.startswith(".") and not is_file(folder / "config.json"):
            yield folder


def _newest_snapshots(cache: Path) -> Iterator[Path]:
    """Format: Hugging Face cache: models--ORG--NAME/refs/main names the snapshot."""
    for reference in cache.glob("models--*/refs/main"):
        try:
            revision = read_bytes(reference, largest_bytes=_LARGEST_REFERENCE_BYTES, reason="damaged_config").decode()
        except (ModelRefused, UnicodeDecodeError):
            continue
        if _REVISION.fullmatch(revision.strip()):
            yield reference.parent.parent / "snapshots" / revision.strip()


def _from_hub(name: str, *, may_download: bool, on_progress: OnProgress | None) -> Path:
    try:
        return Path(snapshot_download(name, allow_patterns=list(WANTED_FILES), local_files_only=True))
    except LocalEntryNotFoundError as error:
        is_partial = isinstance(error, IncompleteSnapshotError)
    except HFValidationError as error:
        raise ModelNotFound(f"{name} is not a hub id: {error}") from error
    here = f"{name} is only partly on this machine" if is_partial else f"{name} is not on this machine"
    if not may_download:
        raise NotDownloaded(f"{here}; it is downloaded when it is loaded")
    try:
        return Path(snapshot_download(name, allow_patterns=list(WANTED_FILES), tqdm_class=_progress_class(on_progress)))
    except GatedRepoError as error:
        raise ModelNotFound(
            f"{here}, and the hub wants you to accept its licence and log in (hf auth login)"
        ) from error
    except RepositoryNotFoundError as error:
        raise ModelNotFound(f"{here}, and {constants.ENDPOINT} has no public model of that name") from error
    except HfHubHTTPError as error:
        raise ModelNotFound(f"{here}, and {constants.ENDPOINT} answered {error.response.status_code}") from error
    except (LocalEntryNotFoundError, OSError) as error:
        raise ModelNotFound(f"{here}, and {_why_not_downloaded(error)}") from error


def _why_not_downloaded(error: Exception) -> str:
    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE forbids to download it"
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return f"it could not be stored: {error.strerror}"
    return f"{constants.ENDPOINT} cannot be reached"


def _progress_class(on_progress: OnProgress | None) -> "type[tqdm[Any]]":
    """A progress bar that draws nothing and reports bytes. huggingface_hub makes several; one counts bytes on disk."""

    class Progress(tqdm):  # type: ignore[misc]  # tqdm comes without types
        monitor_interval = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._counts_bytes = str(kwargs.get("desc", "")).startswith("Reconstructing")
            super().__init__(*args, **{**kwargs, "file": io.StringIO()})

        def update(self, n: float | None = 1) -> None:
            super().update(n)
            if self._counts_bytes and on_progress is not None:
                on_progress(int(self.n), int(self.total or 0))

    return Progress
