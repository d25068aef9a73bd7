"""Views: from a picture of any size to a square of pixels."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from fscil_bench.datasets.images import View, decode_files, view_arrays
from fscil_bench.errors import FscilError


@pytest.fixture
def picture():
    small = np.random.default_rng(0).integers(0, 256, size=(20, 30, 3)).astype(np.uint8)
    return Image.fromarray(small).resize((150, 100), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("turned", [False, True])
def test_a_view_is_torchvisions_resize_and_centre_crop(picture, turned):
    picture = picture.transpose(Image.Transpose.ROTATE_90) if turned else picture
    got = np.asarray(View(56, 64).of(picture)).astype(int)
    expected = np.asarray(v2.Compose([v2.Resize(64), v2.CenterCrop(56)])(picture)).astype(int)
    assert np.abs(got - expected).max() == 0


def test_a_squashed_view_does_not_keep_the_shape(picture):
    got = np.asarray(View(84, 92, squash=True).of(picture)).astype(int)
    expected = np.asarray(v2.Compose([v2.Resize((92, 92)), v2.CenterCrop(84)])(picture)).astype(int)
    assert np.abs(got - expected).max() == 0


def test_files_are_read_with_their_shapes(picture, tmp_path):
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    picture.save(paths[0])
    picture.rotate(90, expand=True).save(paths[1])
    pixels, aspect = decode_files(paths, View(40, 40))
    assert pixels.shape == (2, 3, 40, 40)
    assert pixels.dtype == torch.uint8
    torch.testing.assert_close(aspect, torch.tensor([1.5, 1 / 1.5]))


def test_arrays_are_seen_as_they_are_or_scaled():
    arrays = np.random.default_rng(0).integers(0, 256, size=(3, 3, 32, 32)).astype(np.uint8)
    np.testing.assert_array_equal(view_arrays(arrays, View(32)).pixels.numpy(), arrays)
    assert view_arrays(arrays, View(48, 48)).pixels.shape == (3, 3, 48, 48)


def test_a_picture_of_another_size_needs_a_view_that_scales(picture, tmp_path):
    picture.save(tmp_path / "a.png")
    with pytest.raises(FscilError, match="150x100 pixels, expected 32x32"):
        decode_files([tmp_path / "a.png"], View(32))
