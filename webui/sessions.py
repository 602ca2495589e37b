"""Who may see the page: signed sessions, the token that every form carries, and one-line notices between two pages.

All three are signed with the key in SPLASH_HOME/secrets, so a restart forgets nobody. Who logged out is written down.
"""

import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from itsdangerous import BadData, Signer, URLSafeTimedSerializer
from starlette.responses import Response

from webui.ended_sessions import EndedSessions

SESSION_S: Final = 30 * 24 * 3600
NOTICE_S: Final = 60
PREFERENCE_S: Final = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Session:
    """`form_token` must come back with every form of this session."""

    id: str
    form_token: str


@dataclass(frozen=True, slots=True)
class Notice:
    """`left_at_s` is Unix time. `is_good`: it tells what was done, not what went wrong."""

    message: str
    left_at_s: float
    is_good: bool


class Sessions:
    """Signs and reads the console's cookies. Their names carry the port, because cookies do not know ports."""

    def __init__(self, key: bytes, *, port: int, ended: EndedSessions) -> None:
        self._ended = ended
        self.session_cookie: Final = f"splash-session-{port}"
        self.notice_cookie: Final = f"splash-notice-{port}"
        self.language_cookie: Final = f"splash-language-{port}"
        self.theme_cookie: Final = f"splash-theme-{port}"
        # Set by the page itself, which alone knows the time zone of the person.
        self.zone_cookie: Final = f"splash-zone-{port}"
        # Which columns the list of requests has.
        self.columns_cookie: Final = f"splash-columns-{port}"
        self._sessions = URLSafeTimedSerializer(key, salt=f"session {port}")
        self._notices = URLSafeTimedSerializer(key, salt=f"notice {port}")
        self._forms = Signer(key, salt=f"form {port}")

    def begin(self, response: Response) -> None:
        """Give the browser a new session."""
        self._set(response, self.session_cookie, str(self._sessions.dumps(secrets.token_hex(16))), SESSION_S)

    def end(self, response: Response, session: Session) -> None:
        """For every copy of the cookie, not only for the browser that asked."""
        self._ended.add(session.id, valid_s=SESSION_S)
        response.delete_cookie(self.session_cookie, path="/", httponly=True, samesite="strict")

    def read(self, cookies: dict[str, str]) -> Session | None:
        signed = _signed(self._sessions, cookies.get(self.session_cookie), SESSION_S)
        if signed is None or not isinstance(signed.content, str) or signed.content in self._ended:
            return None
        session_id = signed.content
        return Session(id=session_id, form_token=self._forms.get_signature(session_id).decode())

    def is_form_of(self, session: Session, form_token: str) -> bool:
        return hmac.compare_digest(session.form_token.encode(), form_token.encode())

    def leave_notice(self, response: Response, message: str, *, is_good: bool = False) -> None:
        """Show `message` once, on the next page."""
        self._set(response, self.notice_cookie, str(self._notices.dumps([message, is_good])), NOTICE_S)

    def notice(self, cookies: dict[str, str]) -> Notice | None:
        signed = _signed(self._notices, cookies.get(self.notice_cookie), NOTICE_S)
        match signed.content if signed is not None else None:
            case [str(message), bool(is_good)] if signed is not None:
                return Notice(message, signed.signed_at.timestamp(), is_good)
        return None

    def drop_notice(self, response: Response) -> None:
        response.delete_cookie(self.notice_cookie, path="/", httponly=True, samesite="strict")

    def prefer(self, response: Response, cookie: str, value: str) -> None:
        self._set(response, cookie, value, PREFERENCE_S)

    def _set(self, response: Response, name: str, value: str, valid_s: int) -> None:
        response.set_cookie(name, value, max_age=valid_s, path="/", httponly=True, samesite="strict")


@dataclass(frozen=True, slots=True)
class _Signed:
    content: object
    signed_at: datetime


def _signed(serializer: URLSafeTimedSerializer, value: str | None, valid_s: int) -> _Signed | None:
    if value is None:
        return None
    try:
        content, signed_at = serializer.loads(value, max_age=valid_s, return_timestamp=True)
    except BadData:
        return None
    return _Signed(content, signed_at)
