"""From images to a leaderboard row on tiny data, through the command line."""

import json
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from fscil_bench.backbones.networks import make_network
from fscil_bench.backbones.store import WEIGHTS, bank_name, home, open_backbone
from fscil_bench.banks import open_bank

TRAIN = ("backbone", "train", "--dataset", "cifar100", "--device", "cpu", "--threads", "1")
TINY = ("--set", "network=resnet8", "--set", "epochs=2", "--set", "batch_size=60")


@pytest.fixture
def trained(cli, tiny_cifar):
    """A tiny trained backbone: its folder."""
    done = cli(*TRAIN, *TINY, "--data-root", tiny_cifar)
    assert done.code == 0, done.err
    assert "session 0 AvgAcc" in done.out
    return next((home() / "backbones").iterdir())


def test_from_images_to_a_row(trained, cli, read):
    card = read(trained / "card.json")
    assert card["id"].startswith("cifar100-resnet8-short-")
    assert card["selection"] == {"rule": "last", "epoch": 2, "val_per_class": 0, "leaky": False}
    assert card["pretraining"] == "none"
    assert len(card["curve"]) == 2
    assert set(card["files"]) == {"weights.safetensors", "bank-cifar100.safetensors"}
    assert abs(card["session0"]["cifar100"]["prototypes"]) > 100 / 60  # better than chance
    assert not list((home() / "training").iterdir())
    done = cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", trained.name, "--draws", "3", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["backbone"]["id"] == card["id"]
    assert card["id"] in cli("ls", "backbones").out


def test_training_twice_is_refused_unless_told(trained, cli, tiny_cifar):
    again = cli(*TRAIN, *TINY, "--data-root", tiny_cifar)
    assert again.code == 2
    assert "--restart" in again.error_line
    assert cli(*TRAIN, *TINY, "--data-root", tiny_cifar, "--restart").code == 0


def test_two_trainings_of_one_backbone_at_once(cli, tiny_cifar, tmp_path):
    code = (
        "import sys; from pathlib import Path; from fscil_bench.files import exclusive\n"
        "with exclusive(Path(sys.argv[1]), 'x'): print('held', flush=True); sys.stdin.read()"
    )
    identity = ("--seed", "7", "--data-root", tiny_cifar)
    assert cli(*TRAIN, *TINY, *identity).code == 0  # to learn the id
    lock = home() / "training" / f"{next((home() / 'backbones').iterdir()).name}.lock"
    holder = subprocess.Popen([sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        done = cli(*TRAIN, *TINY, *identity, "--restart")
    finally:
        holder.communicate()
    assert done.code == 1
    assert "another process is training" in done.error_line
    assert next((home() / "backbones").iterdir()).joinpath("card.json").exists()


def test_a_restarted_training_that_is_cut_resumes(trained, cli, tiny_cifar, monkeypatch):
    """--restart, killed in mid-training: without --restart the new training goes on, not the old result."""
    from fscil_bench.backbones import training

    real = training._train_epoch

    def cut_in_the_second(*args):
        if args[6] == 1:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(training, "_train_epoch", cut_in_the_second)
        assert cli(*TRAIN, *TINY, "--data-root", tiny_cifar, "--restart").code == 130
    again = cli(*TRAIN, *TINY, "--data-root", tiny_cifar)
    assert again.code == 0, again.err
    assert "resuming after epoch 1" in again.err


def test_a_diverging_training_is_named(cli, tiny_cifar):
    done = cli(*TRAIN, *TINY, "--data-root", tiny_cifar, "--set", "lr=1e30")
    assert done.code == 1
    assert "diverged in epoch" in done.error_line


def test_restarting_after_a_cut_in_mid_extraction(trained, cli, tiny_cifar, monkeypatch):
    """--restart, killed between saving the weights and the end of extraction: the same command again mends it."""

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fscil_bench.backbones.make.extract", cut)
        assert cli(*TRAIN, *TINY, "--data-root", tiny_cifar, "--restart").code == 130
    assert cli(*TRAIN, *TINY, "--data-root", tiny_cifar).code == 0
    run = cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", trained.name, "--draws", "2")
    assert run.code == 0


def test_shipped_backbones_are_never_overwritten(trained, cli, tiny_cifar, monkeypatch):
    monkeypatch.setattr("fscil_bench.backbones.store._shipped_root", lambda: trained.parent)
    done = cli("backbone", "extract", trained.name, "--dataset", "cifar100", "--data-root", tiny_cifar)
    assert done.code == 2
    assert "is shipped and not to be changed" in done.error_line
    monkeypatch.setenv("FSCIL_BENCH_HOME", str(trained.parents[2] / "other"))
    again = cli(*TRAIN, *TINY, "--data-root", tiny_cifar)
    assert again.code == 0
    assert f"{trained.name}-own: session 0" in again.out


def test_extraction_alone_gives_the_same_bank(trained, cli, tiny_cifar):
    path = trained / bank_name("cifar100")
    before = path.read_bytes()
    path.unlink()
    done = cli("backbone", "extract", trained, "--dataset", "cifar100", "--data-root", tiny_cifar, "--device", "cpu")
    assert done.code == 0, done.err
    assert path.read_bytes() == before
    full = ("--storage", "f32", "--device", "cpu")
    assert cli("backbone", "extract", trained, "--dataset", "cifar100", "--data-root", tiny_cifar, *full).code == 0
    assert path.stat().st_size > len(before)


def test_a_training_without_a_bank_goes_on_with_extraction(trained, cli, tiny_cifar, read):
    (trained / bank_name("cifar100")).unlink()
    card = read(trained / "card.json")
    del card["files"][bank_name("cifar100")]
    (trained / "card.json").write_text(json.dumps(card))
    weights = (trained / "weights.safetensors").stat().st_mtime_ns
    assert cli(*TRAIN, *TINY, "--data-root", tiny_cifar).code == 0
    assert (trained / bank_name("cifar100")).exists()
    assert (trained / "weights.safetensors").stat().st_mtime_ns == weights


def test_the_leaky_selection_is_marked(cli, tiny_cifar, read):
    assert cli(*TRAIN, *TINY, "--data-root", tiny_cifar, "--select", "test").code == 0
    card = read(next((home() / "backbones").iterdir()) / "card.json")
    assert card["selection"]["leaky"] is True
    assert "test_acc" in card["curve"][0]
    assert "test (leaky)" in cli("ls", "backbones").out


def test_a_corrupt_image_exits_with_1_and_leaves_no_backbone(cli, tiny_cifar, tmp_path):
    root = tmp_path / "data"
    shutil.copytree(tiny_cifar, root)
    path = root / "cifar100" / "train" / "bear" / "bear_s_000001.png"
    path.write_bytes(path.read_bytes()[:80])
    done = cli(*TRAIN, *TINY, "--data-root", root)
    assert done.code == 1
    assert "bear_s_000001.png" in done.error_line
    assert not list(home().glob("backbones/*"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--recipe", "shrt"), "did you mean 'short'"),
        (("--set", "epochs=x"), "epochs=x is not a whole number"),
        (("--set", "epochs=1", "--set", "epochs=2"), "--set names epochs twice"),
        (("--set", "lr=-1"), "lr must be above 0"),
        (("--set", "std=0,1,1"), "std above 0"),
        (("--set", "network=resnet21"), "unknown network 'resnet21'"),
        (("--set", "augment=flop"), "unknown augmentation 'flop'"),
        (("--storage", "f8"), "unknown storage type 'f8'"),
        (("--device", "tpu9"), "--device tpu9"),
        (("--select", "best"), "best"),
    ],
)
def test_wrong_calls_exit_with_2_before_training(cli, tiny_cifar, args, message):
    done = cli(*TRAIN, "--data-root", tiny_cifar, *args)
    assert done.code == 2, done.err
    assert message in done.error_line
    assert not list(home().glob("backbones/*"))


def test_a_wrong_data_root_exits_with_2(cli, tmp_path):
    for root, message in ((tmp_path / "none", "is not a folder"), (tmp_path, "no CIFAR-100 in")):
        done = cli(*TRAIN, "--data-root", root)
        assert done.code == 2
        assert message in done.error_line
    assert "FSCIL_BENCH_DATA" in cli(*TRAIN).error_line
    assert cli("backbone", "train", "--dataset", "cub200").code == 2


def test_verify_lists_what_is_wrong_and_exits_with_1(cli, tiny_cifar):
    done = cli("data", "verify", "cifar100", "--data-root", tiny_cifar, "--all")
    assert done.code == 1
    assert "train/apple: 6 images, expected 500" in done.out
    assert "| apple | 6 | 2 |" in done.out
    assert "is not as released" in done.error_line


def test_from_weights_frozen_then_tuned(cli, tiny_cifar, tmp_path, read):
    """Weights from a file: taken as they are with epochs=0, else trained on; the card says where they came from."""
    start = tmp_path / "start.safetensors"
    save_file(make_network("resnet8").state_dict(), start)
    data = ("--data-root", tiny_cifar, "--weights", start)
    frozen = cli(*TRAIN, "--set", "network=resnet8", "--set", "epochs=0", *data, "--storage", "int8")
    assert frozen.code == 0, frozen.err
    folder = next((home() / "backbones").iterdir())
    card = read(folder / "card.json")
    assert (card["epochs"], card["curve"]) == (0, [])
    assert card["pretraining"].startswith("unknown, weights sha256:")
    assert card["pretraining_overlap"]["kind"] == "unknown"
    assert "learned_head" not in card["session0"]["cifar100"]
    assert all(torch.equal(load_file(folder / WEIGHTS)[f"network.{k}"], v) for k, v in load_file(start).items())
    shown = cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", folder.name, "--draws", "2")
    assert (shown.code, "no learned head" in shown.out) == (0, True)
    tuned = cli(*TRAIN, *TINY, *data, "--weights-storage", "f16", "--pretraining", "imagenet1k")
    assert tuned.code == 0, tuned.err
    own = [line for line in cli("ls", "backbones").out.splitlines() if "| own |" in line]
    assert sum("imagenet1k, weights sha256:" in line for line in own) == 1


def test_weights_that_do_not_fit_are_refused(cli, tiny_cifar, tmp_path):
    data = (*TRAIN, *TINY, "--data-root", tiny_cifar, "--weights")
    assert "no weights at" in cli(*data, tmp_path / "none.pth").error_line
    save_file(make_network("resnet14").state_dict(), tmp_path / "other.safetensors")
    refused = cli(*data, tmp_path / "other.safetensors")
    assert (refused.code, "another architecture than resnet8" in refused.error_line) == (2, True)
    assert not (home() / "backbones").exists()
    (tmp_path / "bad.pth").write_bytes(b"cos\nsystem\n(S'echo ran'\ntR.")
    refused = cli(*data, tmp_path / "bad.pth")
    assert (refused.code, "never run" in refused.error_line) == (2, True)


def test_a_backbone_is_exported_whole(cli, trained, tmp_path, flip_bit):
    out = tmp_path / "elsewhere" / "copy"
    done = cli("backbone", "export", trained.name, "--out", out)
    assert (done.code, "Without" in done.out) == (0, False), done.err
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {
        path.name: path.read_bytes() for path in trained.iterdir()
    }
    again = cli("backbone", "export", trained, "--out", out)
    assert (again.code, "is there already" in again.error_line) == (2, True)
    flip_bit(trained / bank_name("cifar100"))
    damaged = cli("backbone", "export", trained, "--out", tmp_path / "other" / "copy")
    assert (damaged.code, "is damaged" in damaged.error_line) == (1, True)
    assert not list((tmp_path / "other").iterdir())


def test_absent_weights_are_named_with_their_place(cli, trained, tiny_cifar, tmp_path, monkeypatch, read):
    """As after an install from a wheel, which lacks large weights: banks work, and the rest says what to get."""
    monkeypatch.setattr("fscil_bench.backbones.store._shipped_root", lambda: trained.parent)
    (trained / WEIGHTS).unlink()
    out = tmp_path / "copy"
    sha256 = read(trained / "card.json")["files"][WEIGHTS]
    hint = f"get the file with sha256 {sha256} from folder fscil_bench/artifacts/{trained.name} of the project's"
    done = cli("backbone", "export", trained.name, "--out", out)
    assert done.code == 0, done.err
    assert f"Without {WEIGHTS}: {hint}" in done.out
    assert cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", out, "--draws", "2").code == 0
    assert "| shipped | not here |" in cli("ls", "backbones").out
    assert not json.loads(cli("ls", "backbones", "--json").out)[0]["weights_here"]
    for call in (("extract", out), ("storage", out, "--out", tmp_path / "smaller", "--draws", "1")):
        refused = cli("backbone", *call, "--dataset", "cifar100")
        assert (refused.code, f"{out / WEIGHTS} is missing" in refused.error_line) == (1, True)
        assert hint in refused.error_line
    (out / bank_name("cifar100")).unlink()
    refused = cli("backbone", "export", out, "--out", tmp_path / "third")
    assert (refused.code, bank_name("cifar100") in refused.error_line) == (1, True)
    assert not (tmp_path / "third").exists()


def test_the_effect_of_storage_is_measured_for_methods(cli, toy_backbone, monkeypatch):
    storage = ("backbone", "storage", toy_backbone(), "--dataset", "cifar100")
    done = cli(*storage, "--draws", "2", "--method", "teen", "--json")
    assert done.code == 0, done.err
    change = json.loads(done.out)["teen"]
    assert set(change) == {"avg_acc", "base_acc", "new_acc", "hmean", "fnr", "fpr"}
    assert max(map(abs, change.values())) < 1
    monkeypatch.setattr("fscil_bench.registry.loadable", lambda: ["fact", "protonet", "teen"])
    same = cli(*storage, "--storage", "f16", "--draws", "2", "--json")
    assert same.code == 0, same.err
    effects = json.loads(same.out)
    assert set(effects) == {"protonet", "teen"}  # fact does not suit this backbone
    assert not any(value for effect in effects.values() for value in effect.values())
    assert cli(*storage, "--storage", "int4").code == 2


def test_a_backbone_is_stored_smaller(cli, trained, tmp_path, read):
    out = tmp_path / "smaller" / trained.name
    call = (
        "backbone",
        "storage",
        trained,
        "--dataset",
        "cifar100",
        "--method",
        "protonet",
        "--draws",
        "2",
        "--storage",
        "int16:1023",
        "--out",
        out,
    )
    done = cli(*call)
    assert done.code == 0, done.err
    assert (out / bank_name("cifar100")).stat().st_size < (trained / bank_name("cifar100")).stat().st_size
    assert read(out / "card.json")["files"]["weights.safetensors"] == read(trained / "card.json")["files"][WEIGHTS]
    bank = open_bank(open_backbone(out), "cifar100")
    assert bank.metadata["storage"]["type"] == "int16:1023"
    assert set(bank.metadata["storage"]["last_session_change"]) == {"protonet"}
    assert cli("run", "--method", "teen", "--dataset", "cifar100", "--backbone", out, "--draws", "2").code == 0
    assert "is there already" in cli(*call).error_line
