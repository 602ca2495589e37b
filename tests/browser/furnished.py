"""A scripted control with something to show on every page: a busy machine with a history."""

import msgspec

from control import wire
from tests.fakes import console_answers, cost
from tests.fakes import control as fake
from tests.fakes import performance as measured
from tests.fakes.control import FakeControl

OUTCOMES = (("completed", None), ("failed", "engine_died"), ("cancelled", "client_gone"), ("rejected", "no_model"))
MACHINE = wire.Machine(
    sampled_at_s=console_answers.NOW_S,
    memory=wire.MachineMemory(
        total_bytes=256 * fake.GIB,
        available_bytes=41 * fake.GIB,
        used_bytes=215 * fake.GIB,
        swap_total_bytes=8 * fake.GIB,
        swap_used_bytes=512 * fake.MIB,
        swap_in_bytes_per_second=0.0,
        swap_out_bytes_per_second=2.5 * fake.MIB,
    ),
    processes=(
        wire.OwnProcess("engine", 4242, 196 * fake.GIB, 178 * fake.GIB, 0, 0.0, 0.0),
        wire.OwnProcess("control", 4240, 148 * fake.MIB, 12 * fake.MIB, 90 * fake.MIB, 0.0, 81_920.0),
        wire.OwnProcess("webui", 4241, 96 * fake.MIB),
    ),
    users=(
        wire.MemoryUser("python3.13", 3, 196 * fake.GIB, True),
        wire.MemoryUser("node", 1_966, int(16.5 * fake.GIB), False),
        wire.MemoryUser("Google Chrome Helper", 41, int(4.2 * fake.GIB), False),
    ),
    num_processes=2_604,
    temperatures=(wire.Temperature("CPU", 71.5),),
    fans=(wire.Fan("left", 2_310),),
    thermal_pressure="moderate",
)
SAVED = (
    wire.Money(currency="CNY", miss=3.5, hit=4.8, output=1.2, total=31.2, cache_saving=20.1),
    wire.Money(currency="USD", miss=0.2, hit=0.1, output=1.8, total=2.1, cache_saving=0.9),
)


def overview() -> wire.Overview:
    today = msgspec.structs.replace(fake.overview().today, saved=SAVED)
    told = fake.overview(
        slots=(fake.prefilling(), fake.decoding(), fake.paused(fake.decoding(4810, slot=3))),
        line=(*(fake.waiting(5000 + n, n) for n in range(1, 4)), fake.waiting(5009, 4, phase="held")),
        today=today,
    )
    trouble = wire.DatabaseHealth(
        waiting_rows=3, lost_rows=1, problem="the disk is full", set_aside="splash.db.damaged"
    )
    return msgspec.structs.replace(told, database=trouble)


def furnish(control: FakeControl) -> None:
    control.overview = overview()
    rows = [fake.finished(4800 - n, *OUTCOMES[n % 4][:1], error_code=OUTCOMES[n % 4][1]) for n in range(12)]
    control.requests = tuple(rows)
    control.keys = console_answers.keys()
    control.models = tuple(
        wire.ModelOnDisk(
            name=name,
            path=f"/models/{name}",
            architecture="qwen3_next",
            quantization="4-bit, group 64",
            weights_bytes=weights_gib * fake.GIB,
            native_context_tokens=262_144,
            fits=weights_gib < 200,
            is_demo=name == "demo",
        )
        for name, weights_gib in ((fake.MODEL.id, 15), ("Qwen3.8-480B-A35B-4bit", 270), ("demo", 1))
    )
    control.unusable = (
        wire.UnusableModel("/home/models/mine", "/home/models/mine has no config.json, so it is not a model folder."),
    )
    listed = tuple(fake.listed(row) for row in rows)
    control.answers |= {
        **console_answers.everything(),
        wire.PERFORMANCE: measured.performance(),
        wire.MISSES: measured.misses(),
        wire.COST: cost.report(),
        wire.PRICES: wire.PriceList(),
        wire.MACHINE: MACHINE,
        wire.REQUESTS: wire.RequestPage(requests=listed, next="4788"),
        wire.REQUEST_CHOICES: wire.RequestChoices(
            keys=("claude", "codex"), models=(fake.MODEL.id,), dialects=("chat", "messages")
        ),
        **{wire.REQUEST.format(id=each.row.id): each for each in listed},
    }
    control.order_answers |= {
        wire.PLAN: wire.PlanAnswer(
            outcome="fits", verdict="fits", name=fake.MODEL.id, plan=fake.PLAN, native_context_tokens=262_144
        )
    }
