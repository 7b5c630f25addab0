"""The text format: everything that protobuf accepts, and one sentence with file and line for what it does not."""

import math

import pytest

from tonnage.errors import InvalidFile
from tonnage.program.caffe.message import Message, message_of
from tonnage.program.text_format import MOST_DEPTH, Block, Plain, Quoted, parse_text


def entries(text: str) -> list[tuple[str, object]]:
    return [(name, value) for name, value, _ in parse_text(text, "net.prototxt").entries]


def net(text: str) -> Message:
    return message_of(parse_text(text, "net.prototxt"), "NetParameter", "net.prototxt")


def test_names_values_and_comments_are_read_with_their_lines() -> None:
    block = parse_text("# a comment\nname: \"a\"  # another\n\nlayer {\n  top: 'b'\n}\n", "f")

    assert block.entries[0] == ("name", Quoted("a"), 2)
    name, inner, line = block.entries[1]
    assert (name, line) == ("layer", 4)
    assert isinstance(inner, Block)
    assert inner.entries == [("top", Quoted("b"), 5)]


@pytest.mark.parametrize("text", ["a { b: 1 }", "a: { b: 1 }", "a < b: 1 >", "a: < b: 1; >", "a {b:1,}"])
def test_every_way_to_write_a_block_is_the_same(text: str) -> None:
    ((_, inner),) = entries(text)

    assert isinstance(inner, Block)
    assert [(name, value) for name, value, _ in inner.entries] == [("b", Plain("1"))]


def test_a_list_is_one_entry_for_each_value() -> None:
    assert entries("a: [1, 2, -3] b: []") == [("a", Plain("1")), ("a", Plain("2")), ("a", Plain("-3"))]


def test_strings_that_follow_each_other_are_one_and_escapes_are_taken() -> None:
    assert entries(r"""a: "x\n\x41\101" 'y"' "\"\\" """) == [("a", Quoted('x\nAAy""\\'))]


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1.0), ("-2.5e-3", -0.0025), (".5", 0.5), ("1.", 1.0), ("3f", 3.0), ("0x10", 16.0), ("inf", math.inf),
     ("-inf", -math.inf), ("1e400", math.inf)],
)  # fmt: skip
def test_numbers_in_all_forms(text: str, value: float) -> None:
    layer = net(f"layer {{ relu_param {{ negative_slope: {text} }} }}").all("layer")[0]

    assert layer.part("relu_param").get("negative_slope") == value


def test_nan_is_a_number_of_text() -> None:
    layer = net("layer { relu_param { negative_slope: nan } }").all("layer")[0]

    assert math.isnan(layer.part("relu_param").get("negative_slope"))


def test_enumerations_are_taken_by_name_and_by_number() -> None:
    layers = net("layer { pooling_param { pool: AVE } } layer { pooling_param { pool: 1 } }").all("layer")

    assert [layer.part("pooling_param").get("pool") for layer in layers] == ["AVE", "AVE"]


def test_what_is_missing_has_its_default() -> None:
    param = net("layer { convolution_param { } }").all("layer")[0].part("convolution_param")

    assert (param.get("group"), param.get("bias_term"), param.get("num_output"), param.all("pad")) == (
        1,
        True,
        None,
        [],
    )


def test_settings_of_unknown_layers_are_passed_over() -> None:
    assert net('quantize: true layer { top: "a" my_param { x: 1 } }').all("layer")[0].all("top") == ["a"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("layer {\n  top: \n}", "line 3: '}' where the value of top should be"),
        ("layer {\n\n", "line 1: layer is never closed"),
        ('\nname: "a', "line 2: '\"a'"),
        ("a b: 1", "line 1: no colon after a"),
        ("}", "line 1: '}' where the name of a field should be"),
        ("a: [1 2]", "line 1: '2' in the list of a"),
        ("[extension.name]: 1", "line 1: an extension in brackets"),
        ("a: 1 @", "line 1: '@', which is neither a name nor a value"),
        ("a {" * (MOST_DEPTH + 1), f"nested more than {MOST_DEPTH} deep"),
        ("name:", "line 1: the end of the file where the value of name should be"),
        ("\nname: 3", "line 2: name should be a text in quotation marks"),
        (
            '\n\nlayer { convolution_param { num_output: "x" } }',
            "line 3: num_output should be a whole number, 0 or more",
        ),
        ("layer { convolution_param { num_output: -1 } }", "num_output is -1, not a whole number, 0 or more"),
        ("layer { convolution_param { num_output: 1.5 } }", "num_output is 1.5, not a whole number, 0 or more"),
        (
            "layer { convolution_param {\nkernel: 3 } }",
            "line 2: the settings ConvolutionParameter have no field kernel",
        ),
        ("layer { pooling_param { pool: MIDDLE } }", "pool is MIDDLE, not one of MAX, AVE, STOCHASTIC"),
        ("layer { convolution_param { bias_term: maybe } }", "bias_term is maybe, not true or false"),
        ("layer: 3", "layer should be followed by braces"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(text: str, told: str) -> None:
    with pytest.raises(InvalidFile) as refused:
        net(text)

    assert refused.value.message.startswith("net.prototxt, line ")
    assert told in refused.value.message
