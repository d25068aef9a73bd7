"""Covariances of classes and their mixtures, against whole matrices."""

import pytest
import torch

from fscil_bench.covariances import Covariances, whitened

SIZES = (3, 7, 40, 9)  # images of each class: fewer than and more than the dimensions


@pytest.fixture
def classes():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 6, dtype=torch.float64, generator=generator) * torch.arange(1, 7) for n in SIZES]


def mixed(covariances, shares, step=2):
    return torch.cat(list(covariances.mixtures(shares, step)))


def test_a_class_alone_has_its_own_covariance(classes):
    alone = mixed(Covariances.of(classes), torch.eye(len(classes), dtype=torch.float64))
    torch.testing.assert_close(alone, torch.stack([torch.cov(x.T) for x in classes]))


@pytest.mark.parametrize("step", [1, 2, 5, 100])
@pytest.mark.parametrize("bytes_held", [1, 500, 10**6])
def test_mixtures_are_weighted_sums_however_many_at_a_time(classes, monkeypatch, step, bytes_held):
    monkeypatch.setattr("fscil_bench.covariances.GROUP_BYTES", bytes_held)
    shares = torch.rand(11, len(classes), dtype=torch.float64)
    parts = list(Covariances.of(classes).mixtures(shares, step))
    assert [len(part) for part in parts] == [len(part) for part in shares.split(step)]
    whole = torch.stack([torch.cov(x.T) for x in classes])
    expected = sum(shares[:, b, None, None] * whole[b] for b in range(len(classes)))
    torch.testing.assert_close(torch.cat(parts), expected)
    torch.testing.assert_close(torch.cat(parts), torch.cat(parts).mT, rtol=0, atol=0)


def test_the_order_of_classes_and_of_images_does_not_matter(classes):
    shares = torch.rand(3, len(classes), dtype=torch.float64)
    expected = mixed(Covariances.of(classes), shares)
    torch.testing.assert_close(mixed(Covariances.of(classes[::-1]), shares.flip(1)), expected)
    torch.testing.assert_close(mixed(Covariances.of([x.flip(0) for x in classes]), shares), expected)


def test_one_image_has_no_covariance():
    one = Covariances.of([torch.rand(1, 4, dtype=torch.float64)])
    assert not mixed(one, torch.ones(1, 1, dtype=torch.float64)).any()


@pytest.mark.parametrize("block", [1, 5, 6, 100])
def test_whitening_is_the_triangular_solution_whatever_the_blocks(monkeypatch, block):
    monkeypatch.setattr("fscil_bench.covariances.BLOCK", block)
    root = torch.rand(3, 11, 11, dtype=torch.float64).tril() + 2 * torch.eye(11)
    away = torch.rand(3, 11, 4, dtype=torch.float64)
    expected = torch.linalg.inv(root) @ away
    torch.testing.assert_close(whitened(root, away.clone()), expected)
