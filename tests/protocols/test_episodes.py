"""Episodes are disjoint, uniform, pinned, and the same whoever asks for them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fscil_bench.protocols import load_protocol
from fscil_bench.protocols.draws import Split
from fscil_bench.protocols.episodes import Plan, RefusedEpisodesError, Sampler


@pytest.fixture(scope="session")
def split(shared_toy_bank):
    return Split(load_protocol("cifar100"), shared_toy_bank(train=17, test=6))


@pytest.fixture(scope="session")
def sampler(split):
    return Sampler(split, Plan())


def test_images_are_of_their_class_and_disjoint(split, sampler):
    some = sampler.sample(0, 400)
    assert some.support.shape == (400, 5, 5)
    assert some.queries.shape == (400, 5, 15)
    both = np.concatenate((some.support, some.queries), axis=2)
    classes = split.targets[both]
    assert (classes == classes[:, :, :1]).all()
    assert (classes >= 60).all()  # new classes only
    assert all(len(set(row)) == 5 for row in classes[:, :, 0])
    assert all(len(set(episode.ravel())) == 100 for episode in both)


@given(start=st.integers(0, 10**6), count=st.integers(2, 40), cut=st.integers(1, 39))
@settings(deadline=None, max_examples=30)
def test_an_episode_depends_on_its_number_alone(sampler, start, count, cut):
    whole = sampler.sample(start, count)
    cut = min(cut, count - 1)
    parts = [sampler.sample(start, cut), sampler.sample(start + cut, count - cut)]
    for name in ("support", "queries"):
        np.testing.assert_array_equal(getattr(whole, name), np.concatenate([getattr(part, name) for part in parts]))


def test_shots_nest_and_ask_the_same_questions(split):
    five, one = (Sampler(split, Plan(shots=(shots,))).sample(3, 50) for shots in (5, 1))
    np.testing.assert_array_equal(one.queries, five.queries)
    np.testing.assert_array_equal(one.support, five.support[:, :, :1])


def test_seeds_differ(split, sampler):
    other = Sampler(split, Plan(seed=1)).sample(0, 50)
    assert (other.queries != sampler.sample(0, 50).queries).mean() > 0.9


def test_classes_and_images_are_uniform(split, sampler):
    """Chi-square over all new classes, over all images, and over the places of an episode."""
    from scipy.stats import chi2

    some = sampler.sample(0, 8000)
    classes = split.targets[some.support[:, :, 0]]
    for place in (classes[:, 0], classes[:, 4], classes.ravel()):
        assert _chi_square(place - 60, 40) < chi2.ppf(0.9999, 39)
    for images in (some.support[:, :, 0], some.support[:, :, 4], some.queries[:, :, 0], some.queries[:, :, 14]):
        rows = np.searchsorted(np.unique(some.queries), images.ravel())
        assert _chi_square(rows, 40 * 23) < chi2.ppf(0.9999, 40 * 23 - 1)


def _chi_square(values, bins):
    counts = np.bincount(values, minlength=bins)
    assert len(counts) == bins
    expected = len(values) / bins
    return ((counts - expected) ** 2 / expected).sum()


def test_first_episode_is_pinned(split, sampler):
    first = sampler.sample(0, 1)
    assert split.targets[first.support[0, :, 0]].tolist() == [60, 92, 61, 80, 79]
    assert [split.bank.ids[row] for row in first.support[0, 0]] == [
        "train/plain/011.png",
        "train/plain/008.png",
        "test/plain/004.png",
        "train/plain/006.png",
        "train/plain/015.png",
    ]


def test_classes_of_different_size_give_all_their_images(toy_bank):
    from dataclasses import replace

    bank = toy_bank(train=17, test=6)
    keep = ~((bank.labels == 70) & ~bank.is_test & (np.arange(len(bank.labels)) % 17 > 13))
    ids = tuple(name for name, kept in zip(bank.ids, keep, strict=True) if kept)
    smaller = replace(bank, features=bank.features[keep], labels=bank.labels[keep], is_test=bank.is_test[keep], ids=ids)
    split = Split(load_protocol("cifar100"), smaller)
    some = Sampler(split, Plan()).sample(0, 3000)
    both = np.concatenate((some.support, some.queries), axis=2)
    assert len(np.unique(both)) == 39 * 23 + (smaller.labels == 70).sum()
    assert all(len(set(episode.ravel())) == 100 for episode in both)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan(ways=41), "41 ways need as many new classes: cifar100 has 40"),
        (Plan(shots=(1, 9)), "class plain has 23 images, 24 are needed for 9 shots and 15 queries"),
        (Plan(queries=30), "class plain has 23 images, 35 are needed"),
    ],
)
def test_what_the_data_cannot_give_is_named(split, plan, message):
    with pytest.raises(RefusedEpisodesError, match=message):
        Sampler(split, plan)


@pytest.mark.parametrize(
    ("name", "base", "validation", "novel"), [("cub200-fsl", 100, 50, 50), ("miniimagenet-fsl", 64, 16, 20)]
)
def test_the_classic_splits_part_the_classes(name, base, validation, novel):
    protocol = load_protocol(name)
    assert (protocol.base, protocol.validation, len(protocol.new_classes), protocol.sessions) == (
        base,
        validation,
        novel,
        0,
    )
    assert sorted(protocol.classes) == sorted(load_protocol(protocol.dataset).classes)
    assert len(set(protocol.classes)) == base + validation + novel


def test_cub_is_parted_by_folder_number():
    protocol = load_protocol("cub200-fsl")
    number = [int(name.split(".")[0]) - 1 for name in protocol.classes]
    assert all(i % 2 == 0 for i in number[:100])
    assert all(i % 4 == 1 for i in number[100:150])
    assert all(i % 4 == 3 for i in number[150:])


def test_known_classes_of_the_miniimagenet_split():
    protocol = load_protocol("miniimagenet-fsl")
    assert {"n01532829", "n13133613"} <= set(protocol.classes[:64])  # house finch, ear
    assert {"n01855672", "n09256479"} <= set(protocol.classes[64:80])  # goose, coral reef
    assert {"n02110341", "n07613480"} <= set(protocol.classes[80:])  # dalmatian, trifle
