"""The controls: an offset, a transformation, an oracle, nearest neighbours; each against an obvious implementation."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fscil_bench.errors import FscilError, UsageError
from fscil_bench.evaluate import Arena
from fscil_bench.method import PrototypeMethod, Support
from fscil_bench.protocols import load_protocol
from fscil_bench.protocols.draws import Split
from fscil_bench.registry import configure, load_method, require_method
from fscil_bench.runner import walk
from fscil_bench.testing import BASE_CLASSES, SESSIONS, WAY, toy


def fitted(name, data, draw=0, **values):
    method = configure(name, "cub200", {key.replace("__", "."): str(value) for key, value in values.items()}).method
    method.fit_base(data.base)
    for support in data.sessions:
        everything = support.all_features if "all_data" in method.privileges else ()
        method.add_session(Support(support.features[draw], everything))
    return method


def cosines(queries, prototypes):
    """One pair at a time."""
    return np.array([[q @ p / np.linalg.norm(q) / np.linalg.norm(p) for p in prototypes] for q in queries])


def base_means(data, change=lambda x: x):
    features, labels = change(data.base.features.numpy()), data.base.labels.numpy()
    return [features[labels == c].mean(axis=0) for c in range(BASE_CLASSES)]


def shot_means(data, change=lambda x: x):
    return [change(shots.numpy()).mean(axis=0) for s in data.sessions for shots in s.features[0]]


@pytest.mark.parametrize("host", ["protonet", "teen", "simteen+teen"])
def test_bias_adds_one_number_to_all_new_classes(host):
    data = toy()
    plain, shifted = (fitted(name, data) for name in (host, f"{host}+bias"))
    offset = np.r_[np.zeros(BASE_CLASSES), np.full(WAY * SESSIONS, 0.02)]
    np.testing.assert_allclose(shifted.scores(data.queries), plain.scores(data.queries).numpy() + offset, rtol=1e-12)


def test_bias_alone_is_protonet_with_the_offset():
    data = toy()
    alone = fitted("bias", data, offset=0.3).scores(data.queries)
    expected = cosines(data.queries.numpy(), base_means(data) + shot_means(data))
    expected[:, BASE_CLASSES:] += 0.3
    np.testing.assert_allclose(alone, expected, rtol=1e-10)
    torch.testing.assert_close(alone, fitted("protonet+bias", data, bias__offset=0.3).scores(data.queries))


def test_a_bias_does_nothing_in_an_episode():
    data = toy()
    data = replace(data, base=replace(data.base, donors_only=True))
    plain, shifted = (fitted(name, data).scores(data.queries).argmax(dim=-1) for name in ("protonet", "protonet+bias"))
    assert torch.equal(plain, shifted)


def test_no_offset_gives_the_hosts_predictions_exactly(toy_backbone):
    arena = Arena("cifar100", str(toy_backbone()))
    draws = arena.draws(f"random:{seed}" for seed in range(3))
    plain = arena.run(configure("teen", "cifar100"), draws)
    with_bias = arena.run(configure("teen+bias", "cifar100", {"bias.offset": "0"}), draws)
    np.testing.assert_array_equal(plain.walk.predictions, with_bias.walk.predictions)


def test_a_larger_offset_gives_up_base_classes_for_new_ones(cli, toy_backbone, read):
    place = toy_backbone()
    rates = []
    for offset in ("-0.05", "0.0", "0.05"):
        args = ("--method", "teen+bias", "--set", f"bias.offset={offset}", "--backbone", place, "--draws", 3, "--json")
        done = cli("run", "--dataset", "cifar100", *args)
        assert done.code == 0, done.err
        summary = json.loads(done.out)["summary"]
        rates.append((summary["base_acc"]["mean"], summary["new_acc"]["mean"]))
    assert rates[0][0] > rates[1][0] > rates[2][0]
    assert rates[0][1] < rates[1][1] < rates[2][1]


def test_tukey_protonet_is_the_mean_of_square_roots():
    data = toy()
    prototypes = base_means(data, np.sqrt) + shot_means(data, np.sqrt)
    expected = cosines(np.sqrt(data.queries.numpy()), prototypes)
    np.testing.assert_allclose(fitted("tukey-protonet", data).scores(data.queries), expected, rtol=1e-10)


def test_a_power_of_one_leaves_features_alone_even_negative_ones():
    data = toy()
    data = type(data)(data.base, data.sessions, data.queries - 0.5)
    plain = fitted("protonet", data).scores(data.queries)
    torch.testing.assert_close(fitted("tukey-protonet", data, power=1).scores(data.queries), plain)
    assert fitted("tukey-protonet", data).scores(data.queries).isfinite().all()


def test_oracle_prototypes_are_the_means_of_all_training_images(toy_backbone):
    arena = Arena("cifar100", str(toy_backbone()))
    split = arena.split
    got = arena.run(configure("oracle-prototypes", "cifar100"), arena.draws(["random:0", "random:1"])).walk.predictions
    features = split.bank.features.double().numpy()
    train, test = split.train_rows, split.test_rows
    means = [features[train[split.targets[train] == c]].mean(axis=0) for c in range(100)]
    np.testing.assert_array_equal(got[0, -1], cosines(features[test], means).argmax(axis=1))
    np.testing.assert_array_equal(got[0], got[1])  # it does not look at the draw


def test_the_oracle_declares_its_privilege(cli, toy_backbone, read):
    done = cli(
        "run", "--method", "oracle-prototypes", "--dataset", "cifar100", "--backbone", toy_backbone(), "--draws", 2
    )
    assert done.code == 0, done.err
    record = read("runs/cifar100/toy/oracle-prototypes.fscil.json")
    assert record["method"]["privileges"] == ["all_data"]


def test_the_oracle_refuses_what_it_cannot_do():
    data = toy()
    method = configure("oracle-prototypes", "cub200").method
    with pytest.raises(UsageError, match="an episode has a few"):
        method.fit_base(replace(data.base, donors_only=True))
    method.fit_base(data.base)
    with pytest.raises(FscilError, match="not given all training images"):
        method.add_session(Support(data.sessions[0].features[0]))


def test_only_the_privilege_brings_all_training_images(toy_bank):
    seen = []

    @dataclass(kw_only=True)
    class Spy(PrototypeMethod):
        def prototypes(self, support):
            seen.append(len(support.all_features))
            return super().prototypes(support)

    @dataclass(kw_only=True)
    class Privileged(Spy):
        privileges = ("all_data",)

    split = Split(load_protocol("cifar100"), toy_bank())
    walk(Spy(), split, [split.random_draw(0)])
    assert set(seen) == {0}
    seen.clear()
    walk(Privileged(), split, [split.random_draw(0)])
    assert set(seen) == {split.protocol.way}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("protonet+oracle-prototypes", "oracle-prototypes cannot be added"),
        ("teen+tukey-protonet", "tukey-protonet cannot be added"),
        ("teen+protonet", "protonet cannot be added"),  # it would do nothing
        ("lda+teen", "lda is not made of prototypes alone"),
        ("knn+bias", "knn is not made of prototypes alone"),
        ("lr+teen", "lr is not made of prototypes alone"),
        ("simteen+teen+teen", "teen comes twice"),
        ("teen+", "a name is missing"),
    ],
)
def test_what_cannot_be_composed_says_why(name, reason):
    with pytest.raises(UsageError, match=reason):
        require_method(name)
        load_method(name)


def test_knn_finds_the_most_similar_support_image():
    data = toy()
    near = [cosines(data.queries.numpy(), shots.numpy()).max(axis=1) for s in data.sessions for shots in s.features[0]]
    expected = np.c_[cosines(data.queries.numpy(), base_means(data)), np.stack(near, axis=1)]
    np.testing.assert_allclose(fitted("knn", data).scores(data.queries), expected, rtol=1e-10)


def test_knn_with_one_shot_is_protonet():
    data = toy()
    data = type(data)(data.base, tuple(Support(s.features[:, :, :1]) for s in data.sessions), data.queries)
    torch.testing.assert_close(fitted("knn", data).scores(data.queries), fitted("protonet", data).scores(data.queries))
