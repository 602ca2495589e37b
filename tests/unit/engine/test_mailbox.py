"""What other threads tell the worker arrives in the order in which it happened."""

import threading

from engine.mailbox import Cancel, Mailbox, Submit
from tests.unit.engine.conversations import PATIENCE_S, a_request


class CancelledAtOnce(dict):
    """Whoever is put in is cancelled by another thread as soon as it can be found."""

    def __init__(self, mailbox: Mailbox):
        super().__init__()
        self._mailbox = mailbox
        self.threads: list[threading.Thread] = []

    def __setitem__(self, request_id, request):
        super().__setitem__(request_id, request)
        thread = threading.Thread(target=self._mailbox.cancel, args=(request_id,))
        self.threads.append(thread)
        thread.start()
        thread.join(0.05)


def test_a_request_arrives_before_its_cancellation():
    mailbox, request = Mailbox(), a_request()
    mailbox._live = CancelledAtOnce(mailbox)

    mailbox.submit(request)

    assert mailbox.take() == Submit(request)
    assert mailbox.take(wait_s=PATIENCE_S) == Cancel(request)


def test_who_is_not_there_cannot_be_cancelled():
    mailbox, request = Mailbox(), a_request()
    mailbox.submit(request)
    mailbox.forget(request)

    assert mailbox.take() == Submit(request)
    assert not mailbox.cancel(request.id)
    assert mailbox.take() is None
