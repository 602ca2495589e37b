"""Who may see the page: signed sessions, the token that every form carries, and one-line notices between two pages.

It keeps nothing in memory: all three are signed with the key in SPLASH_HOME/secrets, so a restart forgets nobody.
"""

import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from itsdangerous import BadData, Signer, URLSafeTimedSerializer
from starlette.responses import Response

SESSION_S: Final = 30 * 24 * 3600
NOTICE_S: Final = 60
PREFERENCE_S: Final = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Session:
    """`form_token` must come back with every form of this session."""

    id: str
    form_token: str


class Sessions:
    """Signs and reads the console's cookies. Their names carry the port, because cookies do not know ports."""

    def __init__(self, key: bytes, *, port: int) -> None:
        self.session_cookie: Final = f"splash-session-{port}"
        self.notice_cookie: Final = f"splash-notice-{port}"
        self.language_cookie: Final = f"splash-language-{port}"
        self.theme_cookie: Final = f"splash-theme-{port}"
        self._sessions = URLSafeTimedSerializer(key, salt=f"session {port}")
        self._notices = URLSafeTimedSerializer(key, salt=f"notice {port}")
        self._forms = Signer(key, salt=f"form {port}")

    def begin(self, response: Response) -> None:
        """Give the browser a new session."""
        self._set(response, self.session_cookie, str(self._sessions.dumps(secrets.token_hex(16))), SESSION_S)

    def end(self, response: Response) -> None:
        response.delete_cookie(self.session_cookie, path="/", httponly=True, samesite="strict")

    def read(self, cookies: dict[str, str]) -> Session | None:
        session_id = _signed_text(self._sessions, cookies.get(self.session_cookie), SESSION_S)
        if session_id is None:
            return None
        return Session(id=session_id, form_token=self._forms.get_signature(session_id).decode())

    def is_form_of(self, session: Session, form_token: str) -> bool:
        return hmac.compare_digest(session.form_token.encode(), form_token.encode())

    def leave_notice(self, response: Response, message: str) -> None:
        """Show `message` once, on the next page."""
        self._set(response, self.notice_cookie, str(self._notices.dumps(message)), NOTICE_S)

    def notice(self, cookies: dict[str, str]) -> str | None:
        return _signed_text(self._notices, cookies.get(self.notice_cookie), NOTICE_S)

    def drop_notice(self, response: Response) -> None:
        response.delete_cookie(self.notice_cookie, path="/", httponly=True, samesite="strict")

    def prefer(self, response: Response, cookie: str, value: str) -> None:
        self._set(response, cookie, value, PREFERENCE_S)

    def _set(self, response: Response, name: str, value: str, valid_s: int) -> None:
        response.set_cookie(name, value, max_age=valid_s, path="/", httponly=True, samesite="strict")


def _signed_text(serializer: URLSafeTimedSerializer, value: str | None, valid_s: int) -> str | None:
    if value is None:
        return None
    try:
        content = serializer.loads(value, max_age=valid_s)
    except BadData:
        return None
    return content if isinstance(content, str) else None
