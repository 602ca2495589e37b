"""What the engine refuses reaches people: as a sentence, whose first word is a capital unless it is a name."""

import pytest

from engine.errors import InvalidRequest, ModelNotFound, NotReady, sentence


@pytest.mark.parametrize(
    ("raised", "read"),
    [
        ("this model takes no images", "This model takes no images."),
        ("a call is required, but there are no tools", "A call is required, but there are no tools."),
        ("org/name is not on this machine", "org/name is not on this machine."),
        ("/models/a has no tokenizer", "/models/a has no tokenizer."),
        ("mlx-lm cannot build it", "mlx-lm cannot build it."),
        ("json_schema needs a schema", "json_schema needs a schema."),
        ("It is damaged.", "It is damaged."),
    ],
)
def test_a_message_is_a_sentence(raised, read):
    assert sentence(raised) == read


def test_a_field_keeps_its_name_and_the_error_its_own_words():
    error = InvalidRequest("temperature must be at least 0", param="sampling.temperature")

    assert error.message == "temperature must be at least 0."
    assert str(error) == "temperature must be at least 0"


def test_every_kind_of_error_has_it():
    assert ModelNotFound("there is no model called x").message == "There is no model called x."
    assert NotReady("the model is not known yet").message == "The model is not known yet."
