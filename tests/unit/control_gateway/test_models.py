"""GET /v1/models for the SDK, and which names a request may use before, while and after a model is there."""

import openai
import pytest

from control.dialects.models import check_model, model_list
from control.errors import UnknownModel
from tests.unit.control_gateway.gateway_stage import DEMO, Source, staged


def source(*, loaded=True, **fields) -> Source:
    return Source(engine=object() if loaded else None, **fields)


def ids(source) -> list[str]:
    return [entry["id"] for entry in model_list(source, now_s=0)["data"]]


async def test_the_sdk_lists_and_finds_the_model(tmp_path):
    async with staged(tmp_path) as stage, openai.AsyncOpenAI(base_url=stage.url, api_key=stage.key) as sdk:
        listed = [model async for model in sdk.models.list()]
        found = await sdk.models.retrieve("demo")
        with pytest.raises(openai.NotFoundError) as caught:
            await sdk.models.retrieve("org/nobody")

    assert [model.id for model in listed] == ["demo"]
    assert found.display_name == "Splash demo (random weights)"
    assert found.has_random_weights is True
    assert (found.max_model_len, found.context_length, found.max_input_tokens) == (4096, 4096, 4096)
    assert (found.object, found.type, found.owned_by) == ("model", "model", "splash")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("path", ["org/name", "org%2Fname"])
async def test_an_id_may_hold_a_slash(tmp_path, path):
    async with staged(tmp_path) as stage:
        stage.source.engine, engine = None, stage.source.engine
        stage.source.wanted_model = "org/name"
        answer = await stage.client.get(f"/v1/models/{path}")
        stage.source.engine = engine

    assert answer.json()["id"] == "org/name"


def test_without_any_model_the_list_is_empty_and_no_name_is_wrong():
    nothing = source(loaded=False, model=None, wanted_model=None)

    listed = model_list(nothing, now_s=0)
    check_model("whatever", nothing)

    assert listed["data"] == []
    assert (listed["object"], listed["has_more"], listed["first_id"]) == ("list", False, None)


def test_the_last_model_is_listed_while_no_engine_is_up():
    assert ids(source(loaded=False)) == ["demo"]


def test_during_a_switch_both_are_valid_and_afterwards_the_old_one_is_not():
    switching = source(loaded=False, wanted_model="/models/next")
    switched = source(model=DEMO.__class__(**{**_fields(), "id": "next"}), wanted_model="/models/next")

    for name in ("demo", "next"):
        check_model(name, switching)
    check_model("next", switched)

    assert ids(switching) == ["demo", "next"]
    assert ids(switched) == ["next"]
    with pytest.raises(UnknownModel):
        check_model("demo", switched)


def _fields() -> dict:
    return {field: getattr(DEMO, field) for field in DEMO.__struct_fields__}


@pytest.mark.parametrize("name", ["default", "claude-opus-9", "gpt-5", "codex-mini", "demo"])
def test_the_vendors_names_stand_for_the_model_that_is_loaded(name):
    check_model(name, source())


@pytest.mark.parametrize("name", ["", "nobody", "Demo", "my-gpt-5", "defaults", "claude"])
def test_any_other_name_is_unknown(name):
    with pytest.raises(UnknownModel):
        check_model(name, source())
