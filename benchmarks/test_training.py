"""What augmentation costs: the shipped recipe beside the same network on a resident tensor without any.

    pytest benchmarks/test_training.py

Both take the same steps in turn, in one run; the result is the median ratio of their throughputs.
"""

import statistics
import time

import torch
from lightning_fabric import Fabric

from fscil_bench.backbones.objectives import build_objective
from fscil_bench.backbones.recipes import load_recipe
from fscil_bench.backbones.training import Images, Normalise, Plan, _train_epoch

IMAGES, ROUNDS = 1280, 9


def test_augmentation_leaves_95_percent_of_the_throughput(benchmark):
    recipe = load_recipe("short", "cifar100")
    plan = Plan(recipe=recipe, n_classes=60)
    fabric = Fabric(accelerator="cpu", devices=1)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=generator)
    images = Images(pixels, torch.arange(IMAGES) % 60, torch.ones(IMAGES))
    normalise = Normalise(recipe.mean, recipe.std, fabric.device)
    resident = normalise(pixels).split(recipe.batch_size)
    labels = images.labels.split(recipe.batch_size)
    objective = build_objective(recipe, 60, 0, seed=1)
    parameters = [{"params": [*objective.parameters()], "rate": 1.0}]
    model, optimizer = fabric.setup(objective, torch.optim.SGD(parameters, lr=1e-3, momentum=0.9))

    def plain() -> None:
        model.train()
        for inputs, targets in zip(resident, labels, strict=True):
            optimizer.zero_grad()
            fabric.backward(model(inputs, targets).total / len(targets))
            optimizer.step()

    def timed(function) -> float:
        started = time.perf_counter()
        function()
        return time.perf_counter() - started

    def silent(*_: float) -> None:
        pass

    ratios = []

    def both() -> None:
        bare = timed(plain)
        ratios.append(bare / timed(lambda: _train_epoch(fabric, model, optimizer, plan, images, normalise, 0, silent)))

    benchmark.pedantic(both, rounds=ROUNDS, warmup_rounds=1)
    ratio = statistics.median(ratios[1:])
    benchmark.extra_info["throughput_ratio"] = ratio
    print(f"\nthroughput with augmentation / without: {ratio:.3f}, median of {ROUNDS}")
    assert ratio >= 0.95
