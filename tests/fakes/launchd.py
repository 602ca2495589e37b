"""A launchd that does what the real one does to a job, and `launchctl`'s five verbs to order it: a program.

State lies in the folder FAKE_LAUNCHD, one file a service. Reproduced from notes/console.md §0 and §5: bootout is
asynchronous and the label stays taken for FAKE_LAUNCHD_LAG_S (1 s) more; meanwhile bootstrap fails with 37 and 5; an
unknown label is 113; SIGTERM, then SIGKILL after ExitTimeOut, then what is left of the process group; a minimal
environment; Umask; output to files that it opens itself. FAKE_LAUNCHD_SESSION is what `managername` says (Aqua).

It runs nothing by itself: neither RunAtLoad nor KeepAlive. Standard library only: jobs start it, too.
"""

import errno
import fcntl
import json
import os
import plistlib
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER = Path(os.environ["FAKE_LAUNCHD"])
LAG_S = float(os.environ.get("FAKE_LAUNCHD_LAG_S", "1"))
MINIMAL_PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
DEFAULT_EXIT_TIMEOUT_S = 5
EX_CONFIG = 78
POLL_S = 0.05
GROUP_LIMIT_S = 2.0


class Refused(Exception):
    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


# --- State: {"path", "plist", "pid", "runs", "exit", "signal", "going", "gone_at"} ---


@contextmanager
def locked():
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def file_of(label: str) -> Path:
    return FOLDER / f"{label}.json"


def read(label: str) -> dict | None:
    """None: unknown, or booted out and gone by now."""
    with suppress(FileNotFoundError):
        state = json.loads(file_of(label).read_text())
        if state["gone_at"] is None or time.time() < state["gone_at"]:
            return state
        file_of(label).unlink(missing_ok=True)
    return None


def write(label: str, state: dict) -> None:
    draft = file_of(label).with_suffix(".new")
    draft.write_text(json.dumps(state))
    draft.replace(file_of(label))


def change(label: str, **changes) -> None:
    with locked():
        state = read(label)
        if state is not None:
            write(label, state | changes)


# --- Verbs ---


def bootstrap(domain: str, path: str) -> None:
    require_domain(domain)
    plist = valid_plist(path)
    with locked():
        state = read(plist["Label"])
        if state is None:
            write(plist["Label"], fresh(path, plist))
            return
    if state["going"] and state["pid"] is not None:
        raise Refused(37, "Bootstrap failed: 37: Operation already in progress")
    raise Refused(5, "Bootstrap failed: 5: Input/output error")


def fresh(path: str, plist: dict) -> dict:
    nothing = dict.fromkeys(("pid", "exit", "signal", "gone_at"))
    return {"path": path, "plist": plist, "runs": 0, "going": False} | nothing


def bootout(target: str) -> None:
    label = label_in(target)
    with locked():
        state = read(label)
        if state is None:
            raise Refused(3, "Boot-out failed: 3: No such process")
        if state["going"]:
            raise Refused(36, "Boot-out failed: 36: Operation now in progress")
        # One without a process is gone after the lag; the keeper of one that runs says when that has ended.
        gone_at = time.time() + LAG_S if state["pid"] is None else None
        write(label, state | {"going": True, "gone_at": gone_at})


def kickstart(*words: str) -> None:
    if words[0] == "-k":
        raise Refused(64, "kickstart -k kills what runs: Splash never uses it")
    label = label_in(words[0])
    with locked():
        state = read(label)
        if state is None:
            raise Refused(113, unknown(label))
        if state["going"]:
            raise Refused(37, "Could not kickstart service: 37: Operation already in progress")
        if state["pid"] is not None:
            return
        ready, started = os.pipe()
        keeper = subprocess.Popen(
            [sys.executable, __file__, "--keep", label, str(started)],
            pass_fds=(started,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(FOLDER / "keepers.log").open("ab"),
            cwd="/",
            start_new_session=True,
        )
        os.close(started)
        pid = os.read(ready, 20)
        assert pid, f"the keeper {keeper.pid} died"
        write(label, state | {"pid": int(pid), "runs": state["runs"] + 1, "exit": None, "signal": None})


def show(target: str) -> str:
    label = label_in(target)
    with locked():
        state = read(label)
    if state is None:
        raise Refused(113, unknown(label))
    lines = [f"{target} = {{", "\tactive count = 1", f"\tpath = {state['path']}", "\ttype = LaunchAgent"]
    lines.append(f"\tstate = {'not running' if state['pid'] is None else 'running'}")
    lines += ["", f"\tprogram = {state['plist']['ProgramArguments'][0]}", "\targuments = {"]
    lines += [f"\t\t{word}" for word in state["plist"]["ProgramArguments"]]
    lines += ["\t}", "", "\tenvironment = {"]
    lines += [f"\t\t{key} => {value}" for key, value in state["plist"].get("EnvironmentVariables", {}).items()]
    lines += ["\t}", f"\truns = {state['runs']}"]
    if state["pid"] is not None:
        lines.append(f"\tpid = {state['pid']}")
    if state["signal"] is not None:
        lines.append(f"\tlast terminating signal = {signal.strsignal(state['signal'])}: {state['signal']}")
    else:
        lines.append(f"\tlast exit code = {'(never exited)' if state['exit'] is None else state['exit']}")
    return "\n".join([*lines, "\tresource coalition = {", "\t\tstate = active", "\t}", "}"])


# --- What launchd checks ---


def valid_plist(path: str) -> dict:
    if not Path(path).is_absolute():
        raise Refused(2, f"{path}: a relative path")
    try:
        content, mode = Path(path).read_bytes(), Path(path).stat().st_mode
    except OSError as error:
        raise Refused(2, f"Bootstrap failed: 2: {os.strerror(error.errno or errno.ENOENT)}") from error
    if mode & 0o022:
        raise Refused(122, "Bootstrap failed: 122: Path had bad ownership/permissions")
    try:
        plist = plistlib.loads(content)
        words = plist["ProgramArguments"]
        assert plist["Label"] and words and all(isinstance(word, str) for word in words)
        assert isinstance(plist.get("Umask", 0), int) and isinstance(plist.get("ExitTimeOut", 0), int)
        assert all(isinstance(plist[key], bool) for key in ("RunAtLoad", "KeepAlive", "AbandonProcessGroup"))
        for whole in (words[0], plist["StandardOutPath"], plist["StandardErrorPath"], plist["WorkingDirectory"]):
            assert Path(whole).is_absolute(), whole
    except (plistlib.InvalidFileException, ValueError, KeyError, AssertionError, SyntaxError) as error:
        raise Refused(5, "Bootstrap failed: 5: Input/output error") from error
    return plist


def require_domain(domain: str) -> None:
    if domain != f"gui/{os.getuid()}":
        raise Refused(125, f"Domain does not support specified action: {domain}")


def label_in(target: str) -> str:
    domain, _, label = target.rpartition("/")
    require_domain(domain)
    return label


def unknown(label: str) -> str:
    return f'Bad request.\nCould not find service "{label}" in domain for user gui: {os.getuid()}'


# --- The keeper of one run: what launchd is to its job ---


def keep(label: str, started: int) -> None:
    state = json.loads(file_of(label).read_text())
    plist = state["plist"]
    try:
        job = start(label, plist)
    except OSError:
        os.write(started, b"0")
        os.close(started)
        change(label, pid=None, exit=EX_CONFIG)
        return
    os.write(started, str(job.pid).encode())
    os.close(started)
    told_at = None
    while job.poll() is None:
        state = read(label)
        if told_at is None and (state is None or state["going"]):
            told_at = time.monotonic()
            job.terminate()
        if told_at is not None and time.monotonic() - told_at > plist.get("ExitTimeOut", DEFAULT_EXIT_TIMEOUT_S):
            job.kill()
        time.sleep(POLL_S)
    if not plist.get("AbandonProcessGroup", False):
        end_group(job.pid)
    code = job.returncode
    outcome = {"exit": code, "signal": None} if code >= 0 else {"exit": None, "signal": -code}
    with locked():
        state = read(label)
        if state is not None:
            gone_at = time.time() + LAG_S if state["going"] else None
            write(label, state | outcome | {"pid": None, "gone_at": gone_at})


def start(label: str, plist: dict) -> "subprocess.Popen[bytes]":
    """Raises OSError when the job can't be started as its property list says."""
    outputs = [os.open(plist[key], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666) for key in OUTPUTS]
    try:
        return subprocess.Popen(
            plist["ProgramArguments"],
            env=environment(label, plist),
            cwd=plist["WorkingDirectory"],
            stdin=subprocess.DEVNULL,
            stdout=outputs[0],
            stderr=outputs[1],
            umask=plist.get("Umask", 0o022),
            start_new_session=True,
        )
    finally:
        for output in outputs:
            os.close(output)


OUTPUTS = ("StandardOutPath", "StandardErrorPath")


def environment(label: str, plist: dict) -> dict[str, str]:
    own = {key: os.environ[key] for key in ("HOME", "USER", "LOGNAME", "SHELL", "TMPDIR") if key in os.environ}
    own |= {key: value for key, value in os.environ.items() if key.startswith("FAKE_")}
    given = {"PATH": MINIMAL_PATH, "XPC_SERVICE_NAME": label} | plist.get("EnvironmentVariables", {})
    # The folder of this fake stands for /bin, where the real launchctl is.
    words = [f"{Path(__file__).parent}:{word}" if word == "/bin" else word for word in given["PATH"].split(":")]
    return own | given | {"PATH": ":".join(words)}


def end_group(group: int) -> None:
    deadline = time.monotonic() + GROUP_LIMIT_S
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGTERM)
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(POLL_S)
        os.killpg(group, signal.SIGKILL)


def main(words: list[str]) -> int:
    if words[0] == "--keep":
        keep(words[1], int(words[2]))
        return 0
    with locked(), (FOLDER / "calls.log").open("a") as log:
        log.write(f"{' '.join(words)}\n")
    verbs = {"bootstrap": bootstrap, "bootout": bootout, "kickstart": kickstart, "print": show}
    try:
        if words == ["managername"]:
            said = os.environ.get("FAKE_LAUNCHD_SESSION", "Aqua")
        else:
            said = verbs[words[0]](*words[1:])
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        return refusal.code
    if said is not None:
        print(said)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
