"""TEEN and SimTEEN against cases worked out by hand, and against each other."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fscil_bench.errors import UsageError
from fscil_bench.evaluate import Arena
from fscil_bench.method import Support, unit
from fscil_bench.registry import configure
from fscil_bench.testing import BASE_CLASSES, toy

BASE = torch.tensor([[2.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
NEW = torch.tensor([[3.0, 3.0 * math.sqrt(3)]], dtype=torch.float64)  # 60 degrees from the first, 30 from the second

vectors = arrays(np.float64, (4, 3), elements=st.floats(0.01, 10))


def method(name, dataset="cub200", **values):
    return configure(name, dataset, {key: str(value) for key, value in values.items()}).method


def test_teen_code_variant_by_hand():
    # cosines 1/2 and sqrt(3)/2; with tau = 2: weights e^1 and e^sqrt(3), normalised
    w1 = math.exp(1) / (math.exp(1) + math.exp(math.sqrt(3)))
    mixture = np.array([w1, 1 - w1]) / math.hypot(w1, 1 - w1)
    expected = 0.75 * np.array([0.5, math.sqrt(3) / 2]) + 0.25 * mixture
    got = method("teen", shift_weight=0.25, tau=2).calibrate(NEW, BASE)
    np.testing.assert_allclose(got.numpy(), [expected], rtol=1e-12)


def test_teen_paper_variant_mixes_raw_prototypes():
    w1 = math.exp(1) / (math.exp(1) + math.exp(math.sqrt(3)))
    expected = 0.75 * NEW.numpy()[0] + 0.25 * np.array([2 * w1, 4 * (1 - w1)])
    got = method("teen", shift_weight=0.25, tau=2, variant="paper").calibrate(NEW, BASE)
    np.testing.assert_allclose(got.numpy(), [expected], rtol=1e-12)


@pytest.mark.parametrize(
    ("dataset", "variant", "weight", "origin"),
    [
        ("cifar100", "code", 0.1, "code"),
        ("cifar100", "paper", 0.9, "paper"),
        ("cub200", "code", 0.5, "code"),
        ("cub200", "paper", 0.5, "paper"),
        ("miniimagenet", "code", 0.5, "code"),
    ],
)
def test_teen_defaults_by_dataset_and_variant(dataset, variant, weight, origin):
    configured = configure("teen", dataset, {"variant": variant})
    assert configured.settings["shift_weight"] == weight
    assert configured.origins["shift_weight"] == origin


def test_simteen_by_hand():
    new, base = unit(NEW), unit(BASE)
    one = method("simteen", shift_weight=0.5, k=1).calibrate(NEW, BASE)
    torch.testing.assert_close(one, 0.5 * new + 0.5 * base[1:])
    mean = method("simteen", shift_weight=0.5, k=2).calibrate(NEW, BASE)
    torch.testing.assert_close(mean, 0.5 * new + 0.25 * (base[:1] + base[1:]))
    total = method("simteen", shift_weight=0.5, k=2, reduce="sum").calibrate(NEW, BASE)
    torch.testing.assert_close(total, 0.5 * new + 0.5 * (base[:1] + base[1:]))


def slow_scores(data, calibrate):
    """Cosines to base means and to what `calibrate` makes of each shot mean, one pair at a time."""
    labels = data.base.labels.numpy()
    base = [data.base.features.numpy()[labels == c].mean(axis=0) for c in range(BASE_CLASSES)]
    new = [calibrate(shots.numpy().mean(axis=0), base) for s in data.sessions for shots in s.features[0]]
    return [[cosine(q, p) for p in (*base, *new)] for q in data.queries.numpy()]


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def slow_teen(new, base, weight, tau, variant):
    similar = np.exp([tau * cosine(new, b) for b in base])
    if variant == "code":
        new, base = new / np.linalg.norm(new), [b / np.linalg.norm(b) for b in base]
    mixture = sum(s * b for s, b in zip(similar / similar.sum(), base, strict=True))
    if variant == "code":
        mixture /= np.linalg.norm(mixture)
    return (1 - weight) * new + weight * mixture


def slow_simteen(new, base, weight, k, reduce):
    nearest = sorted(base, key=lambda b: -cosine(new, b))[:k]
    pull = sum(b / np.linalg.norm(b) for b in nearest)
    return (1 - weight) * new / np.linalg.norm(new) + weight * (pull / k if reduce == "mean" else pull)


@pytest.mark.parametrize(
    ("name", "slow", "values"),
    [
        ("teen", slow_teen, {"shift_weight": 0.4, "tau": 8.0, "variant": "code"}),
        ("teen", slow_teen, {"shift_weight": 0.4, "tau": 8.0, "variant": "paper"}),
        ("simteen", slow_simteen, {"shift_weight": 0.6, "k": 3, "reduce": "mean"}),
        ("simteen", slow_simteen, {"shift_weight": 0.6, "k": 2, "reduce": "sum"}),
    ],
)
def test_scores_are_those_of_a_slow_implementation(name, slow, values):
    data = toy()
    made = method(name, **values)
    made.fit_base(data.base)
    for support in data.sessions:
        made.add_session(Support(support.features[0]))
    expected = slow_scores(data, lambda new, base: slow(new, base, *values.values()))
    np.testing.assert_allclose(made.scores(data.queries), expected, rtol=1e-10)


@given(new=vectors, base=vectors, weight=st.floats(0, 1))
@settings(deadline=None, max_examples=50)
def test_simteen_with_one_neighbour_is_teens_limit(new, base, weight):
    new, base = torch.from_numpy(new), torch.from_numpy(base)
    cosines = unit(new) @ unit(base).T
    best = cosines.topk(2).values
    clear = (best[:, 0] - best[:, 1]) > 1e-5  # a tie has no nearest prototype
    limit = method("teen", shift_weight=weight, tau=1e8).calibrate(new, base)
    nearest = method("simteen", shift_weight=weight, k=1).calibrate(new, base)
    torch.testing.assert_close(limit[clear], nearest[clear], rtol=1e-6, atol=1e-9)


@given(new=vectors, base=vectors)
@settings(deadline=None, max_examples=30)
def test_teen_does_not_depend_on_the_order_of_base_classes(new, base):
    new, base = torch.from_numpy(new), torch.from_numpy(base)
    teen = method("teen")
    torch.testing.assert_close(teen.calibrate(new, base), teen.calibrate(new, base.flip(0)))


def test_teen_reads_only_base_prototypes_not_earlier_sessions():
    data = toy()
    first, second = method("teen"), method("teen")
    first.fit_base(data.base)
    second.fit_base(data.base)
    second.add_session(Support(data.sessions[1].features * 7 + 1))
    first.add_session(data.sessions[0])
    second.add_session(data.sessions[0])
    torch.testing.assert_close(first.new[0], second.new[1])


def test_composed_with_protonet_it_is_teen(toy_backbone):
    arena = Arena("cifar100", str(toy_backbone()))
    draws = arena.draws(f"random:{seed}" for seed in range(5))
    given = {"teen.tau": "8", "teen.shift_weight": "0.4"}
    composed = configure("protonet+teen", "cifar100", given)
    alone = configure("teen", "cifar100", {"tau": "8", "shift_weight": "0.4"})
    one, other = arena.run(composed, draws), arena.run(alone, draws)
    np.testing.assert_array_equal(one.walk.predictions, other.walk.predictions)
    assert composed.baseline == "protonet"
    assert composed.changed == {"teen.tau": 8.0, "teen.shift_weight": 0.4}
    assert composed.settings["teen.variant"] == "code"


def test_composition_calibrates_in_turn():
    new, base = torch.rand(2, 3, 4), torch.rand(5, 4)
    composed = configure("simteen+teen", "cub200").method
    composed.base, composed.new = base, ()
    composed.add_session(Support(new[:, :, None, :]))
    expected = method("teen").calibrate(method("simteen").calibrate(new, base), base)
    torch.testing.assert_close(composed.new[0], expected)
    assert configure("simteen", "cub200").method.further == ()  # the parts are left as they were


@pytest.mark.parametrize("name", ["teen+teen", "teen+nothing", "protonet+teen+teen"])
def test_what_cannot_be_composed_is_named(name):
    with pytest.raises(UsageError, match=r"comes twice|unknown method"):
        configure(name, "cub200")


@pytest.mark.parametrize("name", ["teen", "simteen"])
def test_no_shift_gives_protonets_predictions_exactly(name, toy_backbone):
    arena = Arena("cifar100", str(toy_backbone()))
    draws = arena.draws(f"random:{seed}" for seed in range(5))
    plain = arena.run(configure("protonet", "cifar100"), draws)
    unshifted = arena.run(configure(name, "cifar100", {"shift_weight": "0"}), draws)
    np.testing.assert_array_equal(plain.walk.predictions, unshifted.walk.predictions)
