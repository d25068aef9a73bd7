"""Training: what it learns, which epoch counts, and that a killed one ends as if it had not been."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from fscil_bench.backbones.machine import Machine
from fscil_bench.backbones.recipes import load_recipe
from fscil_bench.backbones.training import Images, Normalise, Plan, hold_out, train
from fscil_bench.errors import FscilError, UsageError

RECIPE = replace(load_recipe("short", "cifar100"), network="resnet8", epochs=3, batch_size=16, lr=0.05)
CPU = Machine(device="cpu", threads=1)
TRAIN = ("backbone", "train", "--dataset", "cifar100", "--device", "cpu", "--threads", "1")


@pytest.fixture
def images():
    """Three classes of 20 images, told apart by colour."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(3).repeat_interleave(20)
    pixels = torch.randint(0, 100, (60, 3, 16, 16), generator=generator, dtype=torch.uint8)
    pixels[torch.arange(60), labels] += 120
    return Images(pixels, labels, torch.ones(60))


def plan(**changes):
    return Plan(**{"recipe": RECIPE, "n_classes": 3, **changes})


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_it_learns(images, tmp_path):
    trained = train(plan(recipe=replace(RECIPE, epochs=6)), images, None, CPU, tmp_path)
    assert trained.curve[-1]["train_acc"] > 90
    assert [row["epoch"] for row in trained.curve] == [1, 2, 3, 4, 5, 6]
    assert trained.epoch == 6


def test_the_seed_decides_the_weights(images, tmp_path):
    one = train(plan(), images, None, CPU, tmp_path / "1").weights
    again = train(plan(), images, None, CPU, tmp_path / "2").weights
    other = train(plan(seed=2), images, None, CPU, tmp_path / "3").weights
    assert same(one, again)
    assert not same(one, other)


def test_resuming_ends_with_the_same_weights(images, tmp_path, monkeypatch):
    straight = train(plan(), images, None, CPU, tmp_path / "straight").weights
    from fscil_bench.backbones import training

    real, calls = training._train_epoch, []

    def dies_in_the_second(*args):
        calls.append(args)
        if len(calls) == 2:
            raise RuntimeError("power cut")
        return real(*args)

    monkeypatch.setattr(training, "_train_epoch", dies_in_the_second)
    with pytest.raises(RuntimeError, match="power cut"):
        train(plan(), images, None, CPU, tmp_path / "cut")
    resumed = train(plan(), images, None, CPU, tmp_path / "cut")
    assert len(calls) == 4  # one whole epoch, the failed one, two more
    assert same(straight, resumed.weights)
    assert len(resumed.curve) == 3


def test_a_training_killed_for_good_resumes_to_the_same_weights(tiny_cifar, tmp_path, cli_process):
    """kill -9 in mid-training, then the same command again."""
    options = (*TRAIN, "--data-root", str(tiny_cifar), "--set", "network=resnet8", "--set", "epochs=4")
    homes = {name: tmp_path / name for name in ("straight", "killed")}

    def command(home):
        env = {**os.environ, "FSCIL_BENCH_HOME": str(home), "OMP_NUM_THREADS": "1"}
        return {"args": [sys.executable, "-m", "fscil_bench", *options], "env": env, "stderr": subprocess.PIPE}

    subprocess.run(**command(homes["straight"]), check=True)
    process = subprocess.Popen(**command(homes["killed"]))
    deadline = time.monotonic() + 120
    while not list(homes["killed"].glob("training/*/state.safetensors")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not list(homes["killed"].glob("backbones/*/card.json"))
    resumed = subprocess.run(**command(homes["killed"]), check=True)
    assert b"resuming after epoch" in resumed.stderr
    weights = [next(home.glob("backbones/*/weights.safetensors")) for home in homes.values()]
    assert same(*(load_file(path) for path in weights))


def test_two_processes_learn_what_one_learns(images, tmp_path):
    """The batch size is global: two processes take the same steps. Equal images make batch statistics equal too."""
    alike = replace(images, pixels=images.pixels[:1].expand(60, -1, -1, -1).contiguous())
    recipe = replace(RECIPE, epochs=2, augment=(), batch_size=16)  # the last batch of each epoch has 12 images
    one = train(plan(recipe=recipe), alike, None, CPU, tmp_path / "one")
    two = train(plan(recipe=recipe), alike, None, replace(CPU, devices=2), tmp_path / "two")
    assert two.curve[1]["loss"] == pytest.approx(one.curve[1]["loss"], rel=1e-5)
    for key, value in one.weights.items():
        if "running_var" not in key:  # its unbiased estimate depends on the number of images
            torch.testing.assert_close(two.weights[key], value, rtol=1e-4, atol=1e-6)


def test_selection_by_held_out_images(images, tmp_path):
    selecting = plan(select="val", val_per_class=5)
    kept, held = hold_out(images.labels, selecting)
    assert sorted(torch.cat((kept, held)).tolist()) == list(range(60))
    assert torch.bincount(images.labels[held]).tolist() == [5, 5, 5]
    trained = train(selecting, images.take(kept), images.take(held), CPU, tmp_path)
    accuracies = [row["val_acc"] for row in trained.curve]
    assert trained.epoch == 3 - accuracies[::-1].index(max(accuracies))  # of equals the latest
    assert accuracies[trained.epoch - 1] == max(accuracies)


def test_selected_weights_are_those_of_the_selected_epoch(images, tmp_path, monkeypatch):
    from fscil_bench.backbones import training

    scores = iter([10.0, 90.0, 50.0])
    monkeypatch.setattr(training, "_accuracy", lambda *_: next(scores))
    selected = train(plan(select="test"), images, images, CPU, tmp_path / "selected")
    assert selected.epoch == 2
    monkeypatch.undo()
    state = load_file(tmp_path / "selected" / "state.safetensors")
    assert not torch.equal(state["model.head.weight"], selected.weights["head.weight"])


def test_too_few_images_to_hold_out(images):
    with pytest.raises(UsageError, match="20 training images: cannot hold out --val-per-class 20"):
        hold_out(images.labels, plan(select="val", val_per_class=20))


def test_held_out_images_are_given_only_where_they_select(images, tmp_path):
    with pytest.raises(ValueError, match="only for"):
        train(plan(), images, images, CPU, tmp_path)


def test_a_damaged_state_is_named(images, tmp_path):
    train(plan(), images, None, CPU, tmp_path)
    path = tmp_path / "state.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(FscilError, match=r"damaged .* --restart"):
        train(plan(), images, None, CPU, tmp_path)


def test_a_state_of_other_settings_is_not_taken(images, tmp_path):
    train(plan(), images, None, CPU, tmp_path)
    with pytest.raises(UsageError, match="other settings"):
        train(plan(seed=5), images, None, CPU, tmp_path)


def test_images_may_grow(images, tmp_path):
    recipe = replace(RECIPE, augment=("resized-crop", "flip"), growth=(8, 16, 24), size=24)
    assert len(train(plan(recipe=recipe), images, None, CPU, tmp_path).curve) == 3


def test_without_momentum(images, tmp_path):
    recipe = replace(RECIPE, momentum=0.0, nesterov=False)
    assert len(train(plan(recipe=recipe), images, None, CPU, tmp_path).curve) == 3


def test_unknown_precision_is_named(images, tmp_path):
    with pytest.raises(UsageError, match="--precision 7-bit"):
        train(plan(), images, None, replace(CPU, precision="7-bit"), tmp_path)


def test_bf16_by_flag(images, tmp_path):
    trained = train(plan(), images, None, replace(CPU, precision="bf16-mixed"), tmp_path)
    assert trained.weights["head.weight"].dtype == torch.float32


def test_normalise():
    pixels = torch.tensor([[[[0]], [[255]], [[51]]]], dtype=torch.uint8)
    got = Normalise((0.5, 0.5, 0.0), (0.5, 0.25, 0.1), torch.device("cpu"))(pixels)
    torch.testing.assert_close(got.flatten(), torch.tensor([-1.0, 2.0, 2.0]))
