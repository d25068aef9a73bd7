"""Packed codes: what was packed comes back, in little space; damaged streams are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fscil_bench.packing import pack, unpack


@st.composite
def codes_and_greatest(draw):
    greatest = draw(st.integers(1, 65535))
    shape = draw(array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=40))
    codes = draw(arrays(np.uint16, shape, elements=st.one_of(st.just(0), st.integers(0, greatest))))
    return codes, greatest


@given(codes_and_greatest())
def test_what_was_packed_comes_back(given):
    codes, greatest = given
    got = unpack(pack(codes, greatest))
    assert got.dtype == np.uint16
    np.testing.assert_array_equal(got, codes)


@pytest.mark.parametrize("greatest", [1, 2, 255, 256, 257, 1023, 4095, 65535])
def test_all_values_come_back(greatest):
    codes = np.arange(greatest + 1, dtype=np.uint16)[:, None].repeat(2, axis=1)
    np.testing.assert_array_equal(unpack(pack(codes, greatest)), codes)


def test_zeros_and_upper_bits_cost_little():
    rng = np.random.default_rng(0)
    codes = rng.normal(2000, 60, size=(4000, 32)).round().astype(np.uint16)  # the entropy is 8 bits each
    codes[rng.random(codes.shape) < 0.5] = 0
    size = sum(stream.nbytes for stream in pack(codes, 4095).values())
    assert size < 1.02 * codes.size * (1 + 0.5 * 8) / 8
    zeros = pack(np.zeros((4000, 32), dtype=np.uint16), 4095)
    assert sum(stream.nbytes for stream in zeros.values()) < codes.size / 50


@pytest.fixture
def streams():
    return pack(np.random.default_rng(0).integers(0, 4096, size=(50, 8)).astype(np.uint16), 4095)


@pytest.mark.parametrize("name", ["nonzero", "upper", "lower"])
def test_cut_and_longer_streams_are_refused(streams, name):
    for other in (streams[name][:-1], streams[name][:0], np.append(streams[name][:-4], streams[name])):
        with pytest.raises(ValueError, match="damaged"):
            unpack({**streams, name: other})


def test_streams_of_other_codes_are_refused(streams):
    for name, other in pack(np.ones((7, 3), dtype=np.uint16), 4095).items():
        with pytest.raises(ValueError, match="damaged"):
            unpack({**streams, name: other})


@pytest.mark.parametrize("layout", [(-1, -1, 4), (50, 8, 9), (50, 8, -1), (50, 8), (50, 9, 4), (2**40, 2**10, 4)])
def test_other_layouts_are_refused(streams, layout):
    with pytest.raises(ValueError):
        unpack({**streams, "layout": np.array(layout)})


@given(name=st.sampled_from(["nonzero", "upper"]), data=st.binary(max_size=200))
def test_noise_is_refused(name, data):
    streams = pack(np.arange(400, dtype=np.uint16).reshape(50, 8), 4095)
    with pytest.raises(ValueError, match="damaged"):
        unpack({**streams, name: np.frombuffer(data, dtype=np.uint8)})
