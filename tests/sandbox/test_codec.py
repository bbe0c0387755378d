"""Plain data through the wall and back, and hostile bytes that must be cheap."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trueup.sandbox.compare import same
from trueup.sandbox.guest import codec
from trueup.sandbox.guest.codec import NotPlainError, dumps, loads
from trueup.sandbox.wire import read_calls_of

hashable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
plain = st.recursive(
    hashable | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.sets(hashable, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(value=plain)
def test_plain_values_come_back_as_they_were_types_included(value):
    assert same(value, loads(dumps(value))) or "nan" in repr(value)


@settings(deadline=None)
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_hostile_bytes_are_decoded_or_refused_and_nothing_else(data):
    try:
        value = loads(data)
    except NotPlainError:
        return
    assert same(value, loads(dumps(value))) or "nan" in repr(value)


class Int(int):
    pass


@pytest.mark.parametrize(
    "value", [object(), Int(3), len, int, range(3), [Int(3)], {"a": object()}, type("T", (dict,), {})()]
)
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(NotPlainError):
        dumps(value)


def test_graphs_that_share_their_parts_stop_at_the_bound():
    node: list = []
    for _ in range(60):
        node = [node, node]
    with pytest.raises(NotPlainError, match="values"):
        dumps(node)
    deep: list = []
    for _ in range(1000):
        deep = [deep]
    with pytest.raises(NotPlainError, match="deep"):
        dumps(deep)


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000 + b"]" * 100_000,
        b'{"t":' * 5_000 + b"[]" + b"}" * 5_000,
        b"9" * 250_000,
        b'{"s":[' + b",".join(b'{"i":"%x"}' % (i * ((1 << 61) - 1)) for i in range(1, 9_000)) + b"]}",
        b'{"d":[' + b",".join(b'[{"i":"%x"},0]' % (i * ((1 << 61) - 1)) for i in range(1, 9_000)) + b"]}",
        b'{"s":[' + b",".join(b'{"t":[{"i":"%x"}]}' % (i * ((1 << 61) - 1)) for i in range(1, 8_000)) + b"]}",
        b'{"d":[[1,2],[1,3]]}',
        b'{"d":[[[],2]]}',
        b'{"z":1}',
        b'{"b":"zz"}',
        b'{"c":[1,2]}',
        b"\xff\xfe",
        b"",
        b'{"s":{"t":[]}}',
    ],
    ids=range(14),
)
def test_bytes_that_would_cost_much_are_refused(data):
    with pytest.raises(NotPlainError):
        loads(data)


def test_a_long_integer_is_read_because_hexadecimal_is_linear():
    assert loads(b'{"i":"' + b"f" * 250_000 + b'"}') == (1 << 1_000_000) - 1


def test_keys_of_one_hash_are_refused_before_the_table_is_built():
    modulus = (1 << 61) - 1
    keys = b",".join(b'{"i":"%x"}' % (i * modulus) for i in range(1, 200))
    with pytest.raises(NotPlainError, match="share one hash"):
        loads(b'{"s":[' + keys + b"]}")
    assert loads(dumps({i * modulus for i in range(codec.MAX_SAME_HASH)}))


def test_special_floats_and_long_integers_survive():
    for value in (math.inf, -math.inf, -0.0, 5e-324, 10**5000, -(10**5000), 1 << 63, -(1 << 63)):
        back = loads(dumps(value))
        assert type(back) is type(value)
        assert back == value
    assert math.copysign(1, loads(dumps(-0.0))) == -1
    assert math.isnan(loads(dumps(math.nan)))


@settings(deadline=None, max_examples=200)
@given(stream=st.binary(max_size=120), n=st.integers(1, 3))
def test_any_record_stream_gives_one_result_per_call(stream, n):
    results = read_calls_of(stream, "missing_records", n)
    assert len(results) == n
    assert all(r.reason is not None or b'"ok"' in stream for r in results)
