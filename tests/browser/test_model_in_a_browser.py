"""The page *Model* in a browser: what is loaded, what is waited for, the machine, and orders that are given here."""

import msgspec
import pytest

from control import wire
from tests.browser.furnished import furnish
from tests.fakes import control as fake
from tests.unit.webui.test_console_model import MACHINE, on_disk

SMALL_SCREEN = {"width": 390, "height": 844}


# For every test: the console lists models rarely, and would show those of the test before.
@pytest.fixture(autouse=True)
def machine(control):
    control.models = (
        on_disk(fake.MODEL.id, path=fake.MODEL.path),
        on_disk("mlx-community/A-Model-With-A-Rather-Long-Name-235B-A22B-4bit", fits=False),
    )
    control.answers[wire.MACHINE] = MACHINE
    return control


def open_page(pages, console, **options):
    page = pages.open(console.link(), **options)
    page.goto(f"{console.address}/model")
    return page


def test_what_is_waited_for_is_counted_down_on_the_page(console, control, pages):
    control.overview = fake.overview(slots=(fake.decoding(output=812),), view=fake.engine("draining"))
    page = open_page(pages, console)
    page.wait_for_selector("#awaited >> text=812 tokens so far")
    node = page.evaluate_handle("document.getElementById('awaited-r4809')")

    control.overview = fake.overview(slots=(fake.decoding(output=900),), view=fake.engine("draining"))
    page.wait_for_selector("#awaited >> text=900 tokens so far")
    is_same = page.evaluate("(node) => node === document.getElementById('awaited-r4809')", node)
    control.overview = fake.overview(view=fake.engine("unloaded"))
    page.wait_for_selector("#awaited", state="detached")

    assert is_same
    assert "No model is loaded" in page.inner_text("#engine")


def test_loading_is_seen_in_bytes_with_its_speed_and_the_time_left(console, control, pages):
    progress = wire.LoadProgress(bytes_read=43 * fake.GIB, bytes_total=100 * fake.GIB, seconds=10.0, read_seconds=8.6)
    control.overview = fake.overview(view=fake.engine("loading", load=progress))
    page = open_page(pages, console)
    page.wait_for_selector("#engine >> text=43.0 GiB of 100.0 GiB read · 5.0 GiB/s · 13 s left")

    control.overview = fake.overview(view=fake.engine(load=progress, wanted_model="org/other", is_downloading=True))
    page.wait_for_selector("#engine >> text=Downloading org/other")

    assert "43.0 GiB of 100.0 GiB downloaded" in page.inner_text("#engine")


def test_orders_are_given_here_after_their_effect_was_read(console, control, pages):
    control.overview = fake.overview(slots=(fake.decoding(),), line=(fake.waiting(5001, 1),))
    page = open_page(pages, console)

    page.click("#engine >> text=Unload…")
    page.wait_for_selector("#panel-unload:popover-open >> text=1 running request finishes first.")
    page.get_by_role("button", name="Unload", exact=True).click()
    page.wait_for_url(f"{console.address}/model")
    page.click("#concurrency >> text=2")
    page.wait_for_url(f"{console.address}/model")

    assert control.orders == [("POST", wire.UNLOAD, {}), ("POST", wire.CONCURRENCY, {"concurrency": 2})]


def test_the_machine_is_refreshed_by_itself_and_its_words_are_explained(console, machine, pages):
    page = open_page(pages, console)
    page.wait_for_selector("#machine >> text=1,966")
    fewer = msgspec.structs.replace(MACHINE.users[1], num_processes=12)
    machine.answers[wire.MACHINE] = msgspec.structs.replace(MACHINE, users=(MACHINE.users[0], fewer))

    page.wait_for_selector("#machine .users td >> text=/^12$/", timeout=12_000)
    page.hover("#machine .users >> text=processes")

    assert "left over from a program that ended" in page.inner_text("#hint:popover-open")


def test_the_hints_of_the_machine_are_reached_by_keyboard(console, machine, pages):
    page = open_page(pages, console)
    page.wait_for_selector("#machine >> text=memory in use")

    page.focus("#machine .hinted[tabindex='0']")
    page.keyboard.press("ArrowRight")

    assert page.evaluate("document.activeElement.textContent") == "available"
    assert "without anything being swapped out" in page.inner_text("#hint:popover-open")


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_small_screen(console, machine, pages, locale, scheme):
    page = open_page(pages, console, viewport=SMALL_SCREEN, locale=locale, color_scheme=scheme)
    page.wait_for_selector("#machine .users")
    page.wait_for_selector("#model-list table")

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cut = page.evaluate(
        "[...document.querySelectorAll('#models .button, #models .c-fits, #machine .facts dd')]"
        ".filter((each) => each.getBoundingClientRect().right > innerWidth || each.scrollWidth > each.clientWidth + 1)"
        ".map((each) => each.textContent.trim())"
    )
    assert cut == []


def test_without_javascript_everything_is_on_the_page(console, machine, pages):
    page = open_page(pages, console, java_script_enabled=False)

    assert "226.0 GiB of 256.0 GiB" in page.inner_text("#machine")
    assert "131,072" in page.inner_text("#models")
    assert "batching" in page.inner_text("#engine")


def test_the_numbers_of_a_process_stand_on_one_line_whether_its_disk_is_busy_or_not(console, control, pages):
    furnish(control)
    page = pages.open(console.link())
    page.goto(f"{console.address}/model")
    page.wait_for_selector(".machine .own tbody tr")

    tops = page.eval_on_selector_all(
        ".machine .own tbody tr",
        """rows => rows.map(row => [...row.cells].map(cell => {
            const range = document.createRange();
            range.setStart(cell.firstChild, 0);
            range.setEnd(cell.firstChild, 1);
            return Math.round(range.getBoundingClientRect().top);
        }))""",
    )

    assert len(tops) == 3
    assert all(max(row) - min(row) <= 1 for row in tops), tops


CELLS = """() => [...document.querySelectorAll("#machine :is(th, td, dt, dd, h3, .bar)")].map((each) => {
    const { left, right, top, bottom } = each.getBoundingClientRect();
    return [left, right, top + scrollY, bottom + scrollY].map(Math.round);
})"""


def of_size(times: float) -> wire.Machine:
    """The same machine with other figures: few digits, or as many as there can be."""
    memory = MACHINE.memory
    grown = {name: int(getattr(memory, name) * times) for name in ("used_bytes", "swap_used_bytes", "available_bytes")}
    rates = {"swap_in_bytes_per_second": 700.0 * times * 2**20, "swap_out_bytes_per_second": 90.0 * times * 2**20}
    own = tuple(
        msgspec.structs.replace(
            each,
            resident_bytes=int(190 * fake.GIB * times),
            disk_read_bytes=int(1_001 * fake.GIB * times),
            disk_written_bytes=int(333 * fake.GIB * times),
            disk_read_bytes_per_second=900.0 * 2**20 * times,
            disk_written_bytes_per_second=900.0 * 2**20 * times,
        )
        for each in MACHINE.processes
    )
    users = tuple(
        msgspec.structs.replace(each, num_processes=int(9_999 * times) + 1, resident_bytes=int(200 * fake.GIB * times))
        for each in MACHINE.users
    )
    return msgspec.structs.replace(
        MACHINE, memory=msgspec.structs.replace(memory, **grown, **rates), processes=own, users=users
    )


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize("width", [1280, 1030, 390])
def test_nothing_of_the_machine_moves_when_its_numbers_grow(console, machine, pages, width, locale):
    machine.answers[wire.MACHINE] = of_size(0.004)
    page = open_page(pages, console, viewport={"width": width, "height": 900}, locale=locale)
    page.wait_for_selector("#machine td >> text=/^40$/")
    small = page.evaluate(CELLS)
    machine.answers[wire.MACHINE] = of_size(0.9)

    page.wait_for_selector("#machine td >> text=/^9,000$/", timeout=12_000)

    assert page.evaluate(CELLS) == small
