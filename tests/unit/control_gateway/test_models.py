"""GET /v1/models for the SDK, and which names a request may use before, while and after a model is there."""

import anthropic
import openai
import pytest

from control.aliases import Aliases
from control.dialects.models import check_model, model_list
from control.errors import UnknownModel
from control.wire import Alias
from tests.unit.control_gateway.gateway_stage import DEMO, Source, staged


def source(*, loaded=True, **fields) -> Source:
    return Source(engine=object() if loaded else None, **fields)


NO_ALIASES = Aliases(())


def ids(source, aliases=NO_ALIASES) -> list[str]:
    return [entry["id"] for entry in model_list(source, aliases, now_s=0)["data"]]


async def test_the_sdk_lists_and_finds_the_model(tmp_path):
    async with staged(tmp_path) as stage, openai.AsyncOpenAI(base_url=stage.url, api_key=stage.key) as sdk:
        listed = [model async for model in sdk.models.list()]
        found = await sdk.models.retrieve("demo")
        with pytest.raises(openai.NotFoundError) as caught:
            await sdk.models.retrieve("org/nobody")

    assert [model.id for model in listed] == ["demo", "default"]
    assert found.display_name == "Splash demo (random weights)"
    assert found.has_random_weights is True
    assert (found.max_model_len, found.context_length, found.max_input_tokens) == (4096, 4096, 4096)
    assert (found.object, found.type, found.owned_by) == ("model", "model", "splash")
    assert caught.value.code == "model_not_found"


async def test_the_sdk_of_anthropic_lists_and_finds_the_model(tmp_path):
    async with (
        staged(tmp_path) as stage,
        anthropic.AsyncAnthropic(base_url=stage.url.removesuffix("/v1"), api_key=stage.key) as sdk,
    ):
        listed = [model async for model in sdk.models.list(limit=1)]
        found = await sdk.models.retrieve("demo")

    assert [model.id for model in listed] == ["demo", "default"]
    assert (found.id, found.type, found.max_input_tokens) == ("demo", "model", 4096)


async def test_claude_code_finds_the_names_that_begin_like_its_vendors(tmp_path):
    aliases = Aliases([Alias(name="claude-*"), Alias(name="claude-local"), Alias(name="anthropic/mine")])
    async with staged(tmp_path, aliases=aliases) as stage:
        listed = (await stage.client.get("/v1/models?limit=1000")).json()
        one = (await stage.client.get("/v1/models/claude-local")).json()
        by_pattern = (await stage.client.get("/v1/models/claude-opus-9")).json()

    assert [entry["id"] for entry in listed["data"]] == ["demo", "claude-local", "anthropic/mine"]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("demo", "anthropic/mine", False)
    assert one == listed["data"][1]
    assert one["display_name"] == "claude-local (Splash demo (random weights))"
    assert one["max_input_tokens"] == 4096
    assert by_pattern == listed["data"][0]


async def test_there_is_no_array_for_codex(tmp_path):
    async with staged(tmp_path) as stage:
        listed = (await stage.client.get("/v1/models")).json()

    assert set(listed) == {"object", "data", "has_more", "first_id", "last_id"}


@pytest.mark.parametrize("path", ["org/name", "org%2Fname"])
async def test_an_id_may_hold_a_slash(tmp_path, path):
    async with staged(tmp_path) as stage:
        stage.source.engine, engine = None, stage.source.engine
        stage.source.wanted_model = "org/name"
        stage.source.availability = "held"
        answer = await stage.client.get(f"/v1/models/{path}")
        stage.source.engine = engine

    assert answer.json()["id"] == "org/name"


def test_without_any_model_the_list_is_empty_and_no_name_is_wrong():
    nothing = source(loaded=False, model=None, wanted_model=None)

    listed = model_list(nothing, Aliases(), now_s=0)
    check_model("whatever", nothing, Aliases())

    assert listed["data"] == []
    assert (listed["object"], listed["has_more"], listed["first_id"]) == ("list", False, None)


def test_the_last_model_is_listed_while_no_engine_is_up():
    assert ids(source(loaded=False)) == ["demo"]


def test_a_model_that_was_asked_for_and_failed_is_not_listed():
    failed = source(loaded=False, model=None, wanted_model="/models/broken", availability="none")

    assert ids(failed, Aliases()) == []


def test_a_model_on_its_way_is_listed_and_the_aliases_stand_for_it():
    coming = source(loaded=False, model=None, wanted_model="/models/next", availability="held")

    assert ids(coming, Aliases()) == ["next", "default"]


def test_an_alias_with_the_name_of_the_model_is_not_listed_twice():
    assert ids(source(), Aliases([Alias(name="demo")])) == ["demo"]


def test_during_a_switch_both_are_valid_and_afterwards_the_old_one_is_not():
    switching = source(loaded=False, wanted_model="/models/next", availability="held")
    switched = source(model=DEMO.__class__(**{**_fields(), "id": "next"}), wanted_model="/models/next")

    for name in ("demo", "next"):
        check_model(name, switching, NO_ALIASES)
    check_model("next", switched, NO_ALIASES)

    assert ids(switching) == ["demo", "next"]
    assert ids(switched) == ["next"]
    with pytest.raises(UnknownModel):
        check_model("demo", switched, NO_ALIASES)


def _fields() -> dict:
    return {field: getattr(DEMO, field) for field in DEMO.__struct_fields__}


@pytest.mark.parametrize("name", ["default", "claude-opus-9", "gpt-5", "codex-mini", "demo"])
def test_the_vendors_names_stand_for_the_model_that_is_loaded(name):
    assert check_model(name, source(), Aliases()) is None


@pytest.mark.parametrize("name", ["", "nobody", "Demo", "my-gpt-5", "defaults", "claude"])
def test_any_other_name_is_unknown(name):
    with pytest.raises(UnknownModel):
        check_model(name, source(), Aliases())


BATCH = Aliases([Alias(name="gpt-*", request_class="batch"), Alias(name="gpt-oss-mine", request_class="batch")])


def test_a_model_whose_own_id_fits_a_pattern_does_not_get_its_class():
    loaded = source(model=DEMO.__class__(**{**_fields(), "id": "gpt-oss-20b"}), wanted_model="gpt-oss-20b")

    assert check_model("gpt-oss-20b", loaded, BATCH) is None
    assert check_model("gpt-5-mini", loaded, BATCH) == "batch"


def test_a_class_that_was_given_to_the_models_own_id_counts():
    loaded = source(model=DEMO.__class__(**{**_fields(), "id": "gpt-oss-mine"}), wanted_model="gpt-oss-mine")

    assert check_model("gpt-oss-mine", loaded, BATCH) == "batch"
