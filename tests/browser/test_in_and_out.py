import http.server
import threading

import pytest

from control.cli.login_page import written_page
from control.home import Home
from tests.browser.test_accessibility import AXE, RULES, VIOLATIONS
from tests.fakes.control_record import gateway_process


@pytest.fixture
def other_site():
    """A page of another site with a link; `localhost` is another site than 127.0.0.1."""

    class Page(http.server.BaseHTTPRequestHandler):
        link = ""

        def do_GET(self):
            body = f'<link rel="icon" href="data:,"><a href="{type(self).link}">open</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield Page, f"http://localhost:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_link_from_the_terminal_opens_the_page(console, pages):
    page = pages.open(console.link())

    assert page.url == f"{console.address}/"
    assert page.inner_text("#state-word") == "ready"


def test_the_file_that_splash_open_shows_opens_the_page(console, pages):
    file = written_page(Home(console.home), console.link())

    page = pages.open(file.as_uri())
    page.wait_for_selector("#state-word >> text=ready")

    assert page.url == f"{console.address}/"


def test_a_link_clicked_on_another_site_opens_the_page_too(console, pages, other_site):
    site, address = other_site
    site.link = console.link()
    page = pages.open(address)

    page.click("text=open")
    page.wait_for_selector("#state-word >> text=ready")

    assert page.url == f"{console.address}/"


def test_a_bookmark_clicked_on_another_site_finds_its_session(console, pages, other_site):
    site, address = other_site
    page = pages.open(console.link())
    site.link = f"{console.address}/clients"
    page.goto(address)

    page.click("text=open")
    page.wait_for_selector("h1 >> text=Clients")

    assert page.url == f"{console.address}/clients"


def test_a_bookmark_without_a_session_ends_at_the_page_that_teaches(console, pages, other_site):
    pages.forgives = lambda complaint: "401" in complaint
    site, address = other_site
    site.link = f"{console.address}/"
    page = pages.open(address)

    page.click("text=open")
    page.wait_for_selector("text=splash open")

    assert page.locator("#state-word").count() == 0


def test_a_used_link_is_refused(console, pages):
    pages.forgives = lambda complaint: "403" in complaint
    link = console.link()
    pages.open(link)

    second = pages.open(link)

    assert "This link does not work any more" in second.inner_text("main")
    assert [cookie for cookie in second.context.cookies() if "session" in cookie["name"]] == []


@pytest.mark.parametrize("with_javascript", [True, False], ids=["javascript", "no-javascript"])
def test_the_password_opens_the_page_that_was_asked_for(own_console, control, pages, with_javascript):
    pages.forgives = lambda complaint: "401" in complaint or "403" in complaint
    (own_console.home / "secrets" / "console-password").write_text("{}")
    control.password = "correct horse battery"
    page = pages.open(f"{own_console.address}/clients", java_script_enabled=with_javascript)
    field, button = page.get_by_label("Password of this console"), page.get_by_role("button", name="Log in")

    field.fill("something else")
    button.click()
    page.get_by_role("alert").filter(has_text="This is not the password.").wait_for()
    field.fill(control.password)
    field.press("Enter")
    page.wait_for_selector("h1 >> text=Clients")

    assert page.url == f"{own_console.address}/clients"
    assert control.tries == [("something else", "127.0.0.1"), (control.password, "127.0.0.1")]


@pytest.mark.parametrize(("locale", "scheme"), [("en-US", "light"), ("zh-CN", "dark")])
def test_axe_finds_nothing_on_the_page_that_asks_for_the_password(own_console, control, pages, locale, scheme):
    pages.forgives = lambda complaint: "401" in complaint or "403" in complaint
    (own_console.home / "secrets" / "console-password").write_text("{}")
    control.password = "correct horse battery"
    phone = {"width": 390, "height": 844}
    page = pages.open(own_console.address, viewport=phone, locale=locale, color_scheme=scheme)
    page.evaluate(AXE.read_text())
    asked = page.evaluate(VIOLATIONS, RULES)

    page.locator("#password").fill("something else")
    page.locator("main button").click()
    page.wait_for_selector("#login-problem")
    page.evaluate(AXE.read_text())
    refused = page.evaluate(VIOLATIONS, RULES)

    assert (asked, refused) == ([], [])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.activeElement.id") == "password"


def test_logging_out_closes_the_page(console, pages):
    pages.forgives = lambda complaint: "401" in complaint
    page = pages.open(console.link())

    page.click("text=Log out")
    page.wait_for_selector("text=Log in with a link")

    assert page.context.request.get(f"{console.address}/clients", max_redirects=0).status == 401


def test_when_the_session_ends_an_open_page_turns_into_the_login_page(console, pages):
    pages.forgives = lambda complaint: "401" in complaint
    page = pages.open(console.link())
    page.wait_for_selector("#state-word")

    page.context.clear_cookies()

    page.wait_for_selector("text=Log in with a link")
    assert page.locator("#slots").count() == 0


def test_a_session_survives_a_restart_of_the_console(own_console, pages):
    pages.forgives = lambda complaint: "ERR_CONNECTION_REFUSED" in complaint or "Failed to fetch" in complaint
    page = pages.open(own_console.link())
    page.goto("about:blank")

    own_console.stop()
    own_console.start()
    page.goto(own_console.address)

    assert page.inner_text("#state-word") == "ready"


def test_a_new_key_is_shown_once_and_can_be_copied(console, control, pages):
    page = pages.open(console.link(), permissions=["clipboard-read", "clipboard-write"])
    page.click("nav >> text=Clients")
    page.get_by_label("name").fill("laptop")

    page.get_by_role("button", name="Make the key").click()
    page.locator("#new-key button.copy").first.click()
    page.wait_for_selector("#new-key >> text=✓")
    copied = page.evaluate("navigator.clipboard.readText()")
    offers = page.locator(".preferences button:enabled").all_inner_texts()
    page.reload()

    assert len([path for _, path, _ in control.orders if path == "/keys"]) == 1
    assert copied == "sk-splash-AbCdEfGhIjKlMnOpQrStUvWx9xYz"
    assert copied not in page.content()
    assert "laptop" in page.inner_text("#keys")
    assert offers == ["Log out"]


def test_quitting_shows_each_step_and_the_last_page_stays_readable(own_console, control, pages):
    """Nothing else lives here: the model is gone at once, soon the gateway, then the console ends by itself."""
    gateway = gateway_process(own_console.home, control)
    page = pages.open(own_console.link())
    other_tab = page.context.new_page()
    other_tab.goto(own_console.address)
    page.click(".masthead nav >> text=Quit")
    effect = page.inner_text("#quit-lead")

    page.get_by_role("button", name="Quit Splash").click()
    page.wait_for_selector("#step-gateway >> text=stopping")
    gateway.kill()
    gateway.wait()
    page.wait_for_selector("#quit-lead >> text=Splash has stopped")
    other_tab.wait_for_selector("#state-word >> text=stopped")
    exit_code = own_console.process.wait(10)
    page.wait_for_timeout(1_500)

    assert "Nothing is left running" in effect
    assert control.orders == [("POST", "/quit", {})]
    assert exit_code == 0
    assert page.inner_text("#step-engine .step-state") == "stopped"
    assert "can be closed" in page.inner_text("#step-page")
    assert page.is_hidden("#lost")
    assert (other_tab.is_hidden("#lost"), other_tab.is_hidden("#stale")) == (True, True)
    assert other_tab.inner_text("#state-word") == "stopped"
    dimmed = "Number(getComputedStyle(document.querySelector('main')).opacity) < 1"
    assert (page.evaluate(dimmed), other_tab.evaluate(dimmed)) == (False, True)
    assert page.inner_text("#state-word") == "stopped"
