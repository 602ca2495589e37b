"""The page *Model*: what is loaded, what is waited for, the models on this machine, and the machine."""

import re

import msgspec
import pytest

from control import wire
from tests.fakes import control as fake

MACHINE = wire.Machine(
    sampled_at_s=1_795_000_000.0,
    memory=wire.MachineMemory(
        total_bytes=256 * fake.GIB,
        available_bytes=30 * fake.GIB,
        used_bytes=226 * fake.GIB,
        swap_total_bytes=8 * fake.GIB,
        swap_used_bytes=fake.GIB,
        swap_out_bytes_per_second=3.0 * fake.MIB,
    ),
    processes=(
        wire.OwnProcess(
            name="engine",
            pid=4242,
            resident_bytes=180 * fake.GIB,
            disk_read_bytes=179 * fake.GIB,
            disk_written_bytes=0,
            disk_read_bytes_per_second=2.0 * fake.GIB,
            disk_written_bytes_per_second=0.0,
        ),
        wire.OwnProcess(name="webui", pid=4244, resident_bytes=50 * fake.MIB),
    ),
    users=(
        wire.MemoryUser(name="Splash", num_processes=3, resident_bytes=180 * fake.GIB, is_ours=True),
        wire.MemoryUser(name="<orphan>", num_processes=1_966, resident_bytes=int(16.5 * fake.GIB), is_ours=False),
    ),
    num_processes=2_400,
    temperatures=(wire.Temperature(sensor="coretemp Package", celsius=71.4),),
    fans=(wire.Fan(name="fan", rounds_per_minute=2_140),),
    thermal_pressure="moderate",
)


def on_disk(name: str, **changes: object) -> wire.ModelOnDisk:
    model = wire.ModelOnDisk(
        name=name,
        path=f"/models/{name}",
        architecture="dense",
        quantization="4-bit",
        weights_bytes=13 * fake.GIB,
        native_context_tokens=131_072,
        fits=True,
        is_demo=False,
    )
    return msgspec.structs.replace(model, **changes)


async def get(console, path: str) -> str:
    return re.sub(r"\s+", " ", (await console.browser.get(path)).text)


def row(html: str, name: str) -> str:
    return next(each for each in html.split("<tr") if f">{name}<" in each)


async def test_a_folder_that_cannot_be_loaded_is_listed_with_the_reason(console):
    console.control.models = (on_disk(fake.MODEL.id, path=fake.MODEL.path),)
    console.control.unusable = (wire.UnusableModel("/home/models/a<b", "/home/models/a<b has no config.json."),)

    html = await get(console, "/model/list")

    folder = html.split('class="unusable"')[1].split("</ul>")[0]
    assert ">a&lt;b<" in folder
    assert "can&#39;t be used:" in folder or "can't be used:" in folder
    assert "/home/models/a&lt;b has no config.json." in folder
    assert "/model/load" not in folder


async def test_the_models_are_listed_with_what_tells_them_apart(console):
    console.control.models = (
        on_disk(fake.MODEL.id, path=fake.MODEL.path),
        on_disk("org/big & odd", fits=False, quantization=None),
    )

    html = await get(console, "/model/list")

    loaded, other = row(html, fake.MODEL.id), row(html, "org/big &amp; odd")
    assert "is-loaded" in loaded
    assert "is-loaded" not in other
    assert "✓</span> fits" in loaded
    assert "✕</span> too large" in other
    assert "13.0 GiB" in other
    assert "131,072" in other
    assert 'href="/model/load?model=org/big%20%26%20odd"' in other


@pytest.mark.parametrize("state", ["stopping", "unloaded", "crashed"])
async def test_a_model_that_left_memory_is_not_marked_as_loaded(console, state):
    console.control.overview = fake.overview(view=fake.engine(state, model=fake.MODEL))
    console.control.models = (on_disk(fake.MODEL.id, path=fake.MODEL.path),)

    assert "is-loaded" not in await get(console, "/model/list")


async def test_the_list_asks_again_as_often_as_a_person_looks(console):
    assert 'hx-get="/model/list" hx-trigger="load, every 2s, refresh"' in await get(console, "/model")


async def test_a_machine_without_models_is_told_how_to_get_one(console):
    assert "Put a folder with weights" in await get(console, "/model/list")


async def test_the_page_comes_before_the_list_and_the_machine_are_known(console):
    html = await get(console, "/model")

    assert "are being looked for" in html
    assert "Nothing is known of this machine yet" in html
    assert 'hx-get="/model/machine" hx-trigger="load, every 5s' in html


@pytest.mark.parametrize("state", ["draining", "stopping"])
async def test_what_is_waited_for_is_named_with_what_it_has_so_far(console, state):
    console.control.overview = fake.overview(
        slots=(fake.prefilling(), fake.decoding(output=812)), view=fake.engine(state)
    )

    html = await get(console, "/model/live")

    waited = html.split('id="awaited"')[1].split("</ul>")[0]
    assert "#4812" in waited
    assert "claude" in waited
    assert "reading its prompt: 71%" in waited
    assert "0 tokens so far" in waited
    assert "#4809" in waited
    assert "812 tokens so far" in waited


async def test_an_engine_that_ends_without_requests_says_that_nobody_is_waited_for(console):
    console.control.overview = fake.overview(view=fake.engine("stopping"))

    assert "No request runs any more" in await get(console, "/model/live")


async def test_a_ready_engine_waits_for_nobody(console):
    console.control.overview = fake.overview(slots=(fake.decoding(),))

    assert "awaited" not in await get(console, "/model/live")


async def test_the_self_checks_are_told_in_plain_words(console):
    console.control.overview = fake.overview(view=fake.padded_engine())
    padded = await get(console, "/model/live")
    console.control.overview = fake.overview(view=fake.engine_with_warnings())
    console.watch.forget()
    troubled = await get(console, "/model/live")

    assert 'Together as alone, a row for each</span> <span class="muted">not for this kind of model' in padded
    assert 'Together as alone, padded</span> <span class="muted">passed' in padded
    assert 'From the cache as computed anew</span> <span class="muted">not passed' in troubled


async def test_orders_given_here_lead_back_here(console):
    for order in ("unload", "stop", "restart", "cache/clear"):
        answer = await console.post(f"/model/engine/{order}")
        assert (answer.status_code, answer.headers["location"]) == (303, "/model")
    answer = await console.post("/model/engine/concurrency", concurrency="2")

    assert answer.headers["location"] == "/model"
    assert [path for _, path, _ in console.control.orders] == [
        wire.UNLOAD,
        wire.UNLOAD,
        wire.RESTART,
        wire.CACHE_CLEAR,
        wire.CONCURRENCY,
    ]


async def test_a_refused_order_is_told_on_the_page_that_it_was_given_on(console):
    console.control.refusal = wire.AdminError(code="quitting", message="Splash is quitting.")

    answer = await console.post("/model/load", model="mine")

    assert answer.headers["location"] == "/model"
    assert "Splash is quitting." in await get(console, "/model")


async def test_the_machine_is_shown_with_its_units_and_unknown_is_a_dash(console):
    console.control.answers[wire.MACHINE] = MACHINE

    html = await get(console, "/model/machine")

    for value in ("226.0 GiB of 256.0 GiB", "30.0 GiB", "1.0 GiB of 8.0 GiB", "3.0 MiB/s", "71 °C", "2,140 rpm"):
        assert f">{value}<" in html
    assert ">a little<" in html
    assert re.search(r">swapped in</span></dt><dd[^>]*>—<", html)
    assert '>179.0 GiB<span class="rate">2.0 GiB/s<' in html
    assert "Memory that processes share is counted for each of them" in html
    console_row = html.split(">console ")[1].split("</tr>")[0]
    assert console_row.count(">—<") == 2


async def test_programs_that_hold_memory_are_grouped_and_ours_is_marked(console):
    console.control.answers[wire.MACHINE] = MACHINE

    html = await get(console, "/model/machine")

    orphans = html.split("&lt;orphan&gt;</td>")[1].split("</tr>")[0]
    assert ">1,966<" in orphans
    assert ">16.5 GiB<" in orphans
    assert html.count("ours</span>") == 1
    assert "2,400 processes could be looked at." in html


async def test_a_machine_that_tells_little_shows_no_empty_lines(console):
    silent = msgspec.structs.replace(MACHINE, temperatures=(), fans=(), thermal_pressure=None)
    no_swap = msgspec.structs.replace(MACHINE.memory, swap_total_bytes=0, swap_used_bytes=0)
    console.control.answers[wire.MACHINE] = msgspec.structs.replace(silent, memory=no_swap)

    html = await get(console, "/model/machine")

    assert re.search(r">swap</span></dt><dd[^>]*>none<", html)
    for word in ("slowed by heat", "hottest sensor", ">fan<"):
        assert word not in html


@pytest.mark.parametrize("path", ["/model", "/model/live", "/model/list", "/model/machine"])
async def test_the_page_is_there_while_the_gateway_is_silent(console, path):
    console.control.is_silent = True
    console.watch.forget()

    answer = await console.browser.get(path)

    assert answer.status_code == 200
