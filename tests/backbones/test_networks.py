"""The networks are those of the papers."""

import sys

import pytest
import torch

from fscil_bench.backbones.networks import CosineClassifier, make_network, seeded
from fscil_bench.backbones.recipes import load_recipe
from fscil_bench.errors import UsageError


def test_resnet20_has_the_published_shape():
    network = make_network("resnet20")
    convolutions = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(convolutions) == 1 + 18 + 2  # stem, three stages of three blocks, two projections
    weights = 9 * (3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64) + 16 * 32 + 32 * 64
    norms = 2 * (7 * 16 + 7 * 32 + 7 * 64)
    assert sum(p.numel() for p in network.parameters()) == weights + norms
    features = network(torch.randn(2, 3, 32, 32))
    assert features.shape == (2, 64)
    assert (features >= 0).all()


def test_cosine_head_does_not_see_lengths():
    head = CosineClassifier(torch.nn.Identity(), 4, 3, scale=16.0)
    x = torch.randn(5, 4)
    torch.testing.assert_close(head(x), head(7 * x))
    assert head(x).abs().max() <= 16


def test_seeded_builds_alike_and_leaves_the_random_state():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, two = (seeded(lambda: make_network("resnet8"), 3) for _ in range(2))
    assert torch.equal(one.stem[0].weight, two.stem[0].weight)
    assert torch.equal(before, torch.get_rng_state())


def test_resnet18_gives_512_features_from_84_pixels():
    network = make_network("resnet18").eval()
    assert network(torch.randn(2, 3, 84, 84)).shape == (2, 512)
    assert sum(p.numel() for p in network.parameters()) == 11_176_512


@pytest.mark.parametrize("name", ["resnet21", "vgg"])
def test_unknown_networks_are_named(name):
    with pytest.raises(UsageError, match="resnet20"):
        make_network(name)


def test_timm_networks_by_name():
    network = make_network("timm:test_efficientnet").eval()
    assert network(torch.randn(2, 3, 64, 64)).shape == (2, network.dim)
    with pytest.raises(UsageError, match=r"unknown network 'timm:test_efficientne'.*timm:test_efficientnet"):
        make_network("timm:test_efficientne")


def test_timm_networks_bring_their_preprocessing():
    changed = load_recipe("cec", "cub200").with_changes({"network": "timm:test_efficientnet", "resize": "180"})
    assert (changed.size, changed.resize, changed.canvas, changed.interpolation) == (160, 180, 168, "bicubic")
    assert load_recipe("cec", "cub200").with_changes({"network": "resnet18"}) == load_recipe("cec", "cub200")


def test_without_timm_its_networks_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UsageError, match=r"pip install 'fscil-bench\[timm\]'"):
        make_network("timm:resnet18")
