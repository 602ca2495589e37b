"""Control's admin door: every path, body and answer of the HTTP API on :18084 that the console and the CLI use.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only.
Every path but HEALTHZ needs `Authorization: Bearer <SPLASH_HOME/secrets/admin>`.
"""

from typing import Final, Literal

from control.wire_connections import KEY_PLACEHOLDER, ClientConnection, ConnectionList
from control.wire_database import Backup, BackupRequest
from control.wire_ending import LeaveRequest, QuitRequest
from control.wire_installation import Installation, StoredRows
from control.wire_keys import (
    CreatedKey,
    KeyChange,
    KeyLimits,
    KeyList,
    KeyTotals,
    KeyTotalsList,
    KeyUsage,
    KeyView,
    NewKey,
)
from control.wire_logs import LOG_NAMES, LogEntry, LogLevel, LogName, LogPage
from control.wire_machine import (
    Fan,
    Machine,
    MachineMemory,
    MemoryUser,
    OwnProcess,
    Temperature,
    ThermalPressure,
)
from control.wire_metrics import (
    ContextPoint,
    ContextThroughput,
    CostLine,
    CostReport,
    DatabaseHealth,
    MissList,
    Money,
    Percentiles,
    Performance,
    Price,
    PriceList,
    Range,
    Regression,
    SpeedPoint,
    Today,
    TtftPoint,
    WidthThroughput,
)
from control.wire_password import PasswordLogin
from control.wire_plan import PlanAnswer, PlanOutcome, PlanRequest
from control.wire_playground import PLAYGROUND_LIMIT_BYTES, PlaygroundMessage, PlaygroundRequest
from control.wire_power import AwakeReason, KeepAwake, KeepAwakeRequest, Power
from control.wire_requests import (
    ListedRequest,
    Outcome,
    RequestChoices,
    RequestPage,
    RequestPhase,
    RequestRow,
    RequestSort,
    Slot,
    SortDirection,
    Waiting,
)
from engine.wire import (
    CacheCleared,
    CacheStatus,
    Frozen,
    GovernorStatus,
    LayoutStatus,
    LoadProgress,
    MemoryActual,
    MemoryPlan,
    MissCause,
    MissExplanation,
    ModelStatus,
    Phase,
    ProcessRecord,
    PromiseStatus,
    RequestClass,
    SelfTest,
)

__all__ = [
    "KEY_PLACEHOLDER",
    "LOG_NAMES",
    "PLAYGROUND_LIMIT_BYTES",
    "AwakeReason",
    "Backup",
    "BackupRequest",
    "CacheCleared",
    "CacheStatus",
    "ClientConnection",
    "ConnectionList",
    "ContextPoint",
    "ContextThroughput",
    "CostLine",
    "CostReport",
    "CreatedKey",
    "DatabaseHealth",
    "Fan",
    "GovernorStatus",
    "Installation",
    "KeepAwake",
    "KeepAwakeRequest",
    "KeyChange",
    "KeyLimits",
    "KeyList",
    "KeyTotals",
    "KeyTotalsList",
    "KeyUsage",
    "KeyView",
    "LayoutStatus",
    "LeaveRequest",
    "ListedRequest",
    "LoadProgress",
    "LogEntry",
    "LogLevel",
    "LogName",
    "LogPage",
    "Machine",
    "MachineMemory",
    "MemoryActual",
    "MemoryPlan",
    "MemoryUser",
    "MissCause",
    "MissExplanation",
    "MissList",
    "ModelStatus",
    "Money",
    "NewKey",
    "Outcome",
    "OwnProcess",
    "PasswordLogin",
    "Percentiles",
    "Performance",
    "Phase",
    "PlanAnswer",
    "PlanOutcome",
    "PlanRequest",
    "PlaygroundMessage",
    "PlaygroundRequest",
    "Power",
    "Price",
    "PriceList",
    "ProcessRecord",
    "PromiseStatus",
    "QuitRequest",
    "Range",
    "Regression",
    "RequestChoices",
    "RequestClass",
    "RequestPage",
    "RequestPhase",
    "RequestRow",
    "RequestSort",
    "SelfTest",
    "Slot",
    "SortDirection",
    "SpeedPoint",
    "StoredRows",
    "Temperature",
    "ThermalPressure",
    "Today",
    "TtftPoint",
    "Waiting",
    "WidthThroughput",
]

WIRE_VERSION: Final = 1

HEALTHZ: Final = "/healthz"
OVERVIEW: Final = "/overview"
LOAD: Final = "/engine/load"
UNLOAD: Final = "/engine/unload"
RESTART: Final = "/engine/restart"
CACHE_CLEAR: Final = "/engine/cache/clear"
CONCURRENCY: Final = "/settings/concurrency"
ALIASES: Final = "/settings/aliases"
HEARTBEATS: Final = "/settings/heartbeats"
KEEP_AWAKE: Final = "/settings/keep-awake"
PRICES: Final = "/settings/prices"
METRICS: Final = "/metrics"
PERFORMANCE: Final = "/performance"
COST: Final = "/cost"
MISSES: Final = "/engine/misses"
BACKUP: Final = "/database/backup"
REQUESTS: Final = "/requests"
REQUEST_EXPORT: Final = "/requests/export"
REQUEST_CHOICES: Final = "/requests/choices"
REQUEST: Final = "/requests/{id}"
CANCEL: Final = "/requests/{id}/cancel"
KEYS: Final = "/keys"
KEY: Final = "/keys/{id}"
KEY_TOTALS: Final = "/keys/totals"
CONNECTIONS: Final = "/connections"
LOGS: Final = "/logs/{name}"
LOG_FILE: Final = "/logs/{name}/file"
INSTALLATION: Final = "/installation"
MODELS: Final = "/models"
PLAN: Final = "/plan"
MACHINE: Final = "/machine"
LOGIN_LINKS: Final = "/login-links"
REDEEM: Final = "/login-links/redeem"
PASSWORD_LOGIN: Final = "/login/password"
PLAYGROUND: Final = "/playground"
QUIT: Final = "/quit"
LEAVE: Final = "/leave"

# The life of the engine process as control sees it.
EngineState = Literal["unloaded", "loading", "ready", "draining", "stopping", "crashed", "failed"]
NUM_SLOTS: Final = 4

Default = Literal["default"]
DEFAULT: Final[Default] = "default"


class AdminError(Frozen, frozen=True, omit_defaults=False):
    """Body of every admin answer that is not 2xx: one sentence for a person, and a code for a program."""

    code: str
    message: str


class Health(Frozen, frozen=True, omit_defaults=False):
    """GET /healthz of control and of webui: identity only."""

    name: Literal["control", "webui"]
    pid: int
    nonce: str
    wire_version: int = WIRE_VERSION


class LoadRequest(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /engine/load.

    `model` None: the last one, else the demo. A setting that is None: what that model had last; "default": as if it had
    never been set. `kv_bits` 8 or 4; `max_gap_ms` 50 to 10,000; `decode_share` 0 to 0.9.

    A running model is replaced gracefully: running requests finish, waiting ones are held and go on with the new model.
    """

    model: str | None = None
    context: int | Default | None = None
    budget_bytes: int | Default | None = None
    kv_bits: int | Default | None = None
    max_gap_ms: float | Default | None = None
    decode_share: float | Default | None = None


class UnloadRequest(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /engine/unload. Graceful unless `force`: then running requests are cut, with a typed error each."""

    force: bool = False


class ConcurrencyRequest(Frozen, frozen=True, forbid_unknown_fields=True):
    concurrency: int


class Alias(Frozen, frozen=True, omit_defaults=False, forbid_unknown_fields=True):
    """A name that stands for the loaded model; `*` in it is any text. `request_class` None: that of the key."""

    name: str
    request_class: RequestClass | None = None


class AliasList(Frozen, frozen=True, omit_defaults=False, forbid_unknown_fields=True):
    """GET and PUT /settings/aliases: all of them; PUT replaces them."""

    aliases: tuple[Alias, ...]


class HeartbeatModes(Frozen, frozen=True, forbid_unknown_fields=True):
    """PUT /settings/heartbeats: a mode by dialect; a dialect that is left out stays as it is."""

    modes: dict[str, str]


class HeartbeatSettings(Frozen, frozen=True, omit_defaults=False):
    """GET and PUT /settings/heartbeats: what is in force, and what each dialect can have, the default first."""

    modes: dict[str, str]
    choices: dict[str, tuple[str, ...]]


class Accepted(Frozen, frozen=True, omit_defaults=False):
    """202: begun. `running` requests finish first; `waiting` are held (or, on quit, told)."""

    message: str
    running: int = 0
    waiting: int = 0


class EngineView(Frozen, frozen=True, omit_defaults=False):
    """The engine's life as control knows it, with its newest /status (`status_age_s` None: never answered).

    `holds`: requests that come now wait for a ready model. False: they run, or nobody is on the way and they get a 503.
    `cache` comes without its list of misses. `is_downloading`: `load` and `wanted_model` are about a model that is
    being downloaded, while another one runs or ends. `last_model`: was ready last; None: an older control does not say.
    """

    state: EngineState
    pid: int | None = None
    port: int | None = None
    model_name: str | None = None
    wanted_model: str | None = None
    since_s: float = 0.0
    restarts: int = 0
    error: str | None = None
    load: LoadProgress | None = None
    model: ModelStatus | None = None
    layout: LayoutStatus | None = None
    self_tests: tuple[SelfTest, ...] = ()
    memory_plan: MemoryPlan | None = None
    memory_actual: MemoryActual | None = None
    cache: CacheStatus | None = None
    promises: PromiseStatus | None = None
    governor: GovernorStatus | None = None
    status_age_s: float | None = None
    holds: bool = False
    is_downloading: bool = False
    last_model: str | None = None


class Overview(Frozen, frozen=True, omit_defaults=False):
    """GET /overview: what the first page shows, once a second. `slots` has NUM_SLOTS entries, None where free.

    `leaving`: control takes no new request, and ends with the last that runs.
    """

    sampled_at_s: float
    engine: EngineView
    concurrency: int
    slots: tuple[Slot | None, ...]
    waiting: tuple[Waiting, ...]
    decode_tokens_per_second: float | None
    decoding: int
    today: Today
    database: DatabaseHealth = DatabaseHealth()
    power: Power = Power()
    quitting: bool = False
    leaving: bool = False
    api_base: str = ""
    version: str = ""


class ModelOnDisk(Frozen, frozen=True, omit_defaults=False):
    """One model on this machine. `name` is what load takes."""

    name: str
    path: str
    architecture: str
    quantization: str | None
    weights_bytes: int
    native_context_tokens: int
    fits: bool
    is_demo: bool


class UnusableModel(Frozen, frozen=True, omit_defaults=False):
    """A folder among the home's models that can't be loaded; `message`: the sentence that says why."""

    path: str
    message: str


class ModelList(Frozen, frozen=True, omit_defaults=False):
    models: tuple[ModelOnDisk, ...]
    refused: tuple[UnusableModel, ...] = ()


class NewLoginLink(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /login-links. `valid_s`: 600 when a person reads it, 30 when a program opens it."""

    valid_s: float = 600.0


class LoginLink(Frozen, frozen=True, omit_defaults=False):
    token: str
    expires_at_s: float


class Redeem(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /login-links/redeem: 200 once; 404 when unknown, used or expired."""

    token: str
