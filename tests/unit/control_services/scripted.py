"""A launchctl that answers as it is told, in a time that passes only when somebody pauses."""

from dataclasses import dataclass, field

from control.services.launchctl import Done, Job

LOADED = Job()
RUNNING = Job(pid=77)
EXITED = Job(last_exit_code=1)


@dataclass
class Clock:
    now_s: float = 0.0

    def now(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class ScriptedLaunchctl:
    """`loaded` is the job as `print` shows it, None while launchd does not know it.

    `bootout_s`: so long it goes on being known. `refuses`: exit codes that verbs answer first, by verb, one a call.
    """

    clock: Clock
    loaded: Job | None = None
    bootout_s: float = 0.0
    refuses: dict[str, list[int]] = field(default_factory=dict)
    verbs: list[str] = field(default_factory=list)
    _gone_at: float | None = None

    def find(self, label: str) -> Job | None:
        if self._gone_at is not None and self.clock.now() >= self._gone_at:
            self.loaded, self._gone_at = None, None
        return self.loaded

    def bootstrap(self, file) -> Done:
        assert file.exists()
        done = self._answer("bootstrap")
        if done.code == 0:
            self.loaded = LOADED
        return done

    def kickstart(self, label: str) -> Done:
        done = self._answer("kickstart")
        if done.code == 0:
            self.loaded = RUNNING
        return done

    def bootout(self, label: str) -> Done:
        done = self._answer("bootout")
        if done.code == 0:
            self._gone_at = self.clock.now() + self.bootout_s
        return done

    def _answer(self, verb: str) -> Done:
        self.verbs.append(verb)
        codes = self.refuses.get(verb)
        code = codes.pop(0) if codes else 0
        return Done(code, "" if code == 0 else f"{verb} failed: {code}")
