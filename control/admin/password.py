"""The console's password as a route of the admin API: whether it is the right one, and how often that may be asked.

It begins no session: the console does.
"""

import asyncio
import ipaddress
import logging
import math
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from control.admin.edge import body_of
from control.admin.errors import NoPassword, OrderInvalid, TooManyAttempts, WrongPassword
from control.console_password import ConsolePassword
from control.password_attempts import PasswordAttempts, Waiting

logger = logging.getLogger(__name__)

# Until one of those that wait has had its try.
BUSY_RETRY_S: Final = 1


@dataclass(frozen=True, slots=True)
class PasswordApi:
    password: ConsolePassword
    attempts: PasswordAttempts
    # Each try takes 32 MiB and a core for a tenth of a second; and none may be counted after it was allowed.
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: Waiting = field(default_factory=Waiting)

    def routes(self) -> list[Route]:
        return [Route(wire.PASSWORD_LOGIN, self._check, methods=["POST"])]

    async def _check(self, request: Request) -> Response:
        order = await body_of(request, wire.PasswordLogin)
        address = _address(order.address)
        self._require_tries_left(address)
        with self._waiting.place() as has_place:
            if not has_place:
                logger.warning("console password not tried address=%s reason=too many at once", address)
                raise TooManyAttempts(retry_after_s=BUSY_RETRY_S)
            await self._try(order.password, address)
        logger.info("console password right address=%s", address)
        return Response(status_code=204)

    async def _try(self, password: str, address: str) -> None:
        """Returns when it is the right one. Raises TooManyAttempts, NoPassword, WrongPassword."""
        async with self._turn:
            self._require_tries_left(address)
            kept = await asyncio.to_thread(self.password.read)
            if kept is None:
                raise NoPassword
            if not await asyncio.to_thread(kept.fits, password):
                self.attempts.failed(address)
                logger.warning("console password wrong address=%s", address)
                raise WrongPassword

    def _require_tries_left(self, address: str) -> None:
        wait_s = self.attempts.wait_s(address)
        if wait_s > 0:
            logger.warning("console password not tried address=%s reason=too many attempts", address)
            raise TooManyAttempts(retry_after_s=math.ceil(wait_s))


def _address(text: str) -> str:
    """As it is always written. Raises OrderInvalid."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise OrderInvalid("address must be an IP address.") from error
