"""The one training loop, on a small regression."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tabr.config import TrainingConfig
from tabr.device.cuda_graphs import Lane
from tabr.errors import ParameterError, TrainingError
from tabr.training.loop import History, Job, fit_networks, seeded


def fit(
    config: TrainingConfig,
    score: Callable[[nn.Module], float] | None = None,
    loss: Callable[[nn.Module, Tensor], Tensor] | None = None,
    freeze: Callable[[], None] | None = None,
    seed: int = 0,
    first: tuple[nn.Module, ...] = (),
) -> tuple[nn.Module, History]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 3, generator=generator)
    y = x.sum(1) ** 2
    with seeded(seed, torch.device("cpu")) as order:
        layers = nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)
        network = nn.Sequential(*first, *layers)

        def mse(batch: Tensor) -> Tensor:
            if loss is not None:
                return loss(network, batch)
            return (network(x[batch]).squeeze(-1) - y[batch]).square().mean()

        def negative_error(output: Tensor) -> float:
            if score is not None:
                return score(network)
            return -(output.squeeze(-1) - y).square().mean().item()

        lane = Lane(torch.device("cpu"))
        job = Job(network, mse, lambda: network(x), negative_error, order, lane, freeze)
        (history,) = fit_networks([job], 100, config)
    return network, history


def quick(**values: object) -> TrainingConfig:
    defaults = {"learning_rate": 1e-2, "batch_size": 32, "max_epochs": 12}
    return TrainingConfig(**{**defaults, **values})


def test_training_improves_the_score() -> None:
    _, history = fit(quick(max_epochs=40))
    assert history.best_score > history.score[0] + 1
    assert history.loss[-1] < history.loss[0]


def test_the_best_epoch_is_kept_not_the_last() -> None:
    seen: list[list[Tensor]] = []
    scores = iter([0.0, 2.0, 1.0, 1.5, 0.5])

    def score(network: nn.Module) -> float:
        seen.append([p.detach().clone() for p in network.parameters()])
        return next(scores)

    network, history = fit(quick(max_epochs=5), score)
    assert history.best_epoch == 1
    assert history.best_score == 2.0
    for parameter, kept in zip(network.parameters(), seen[1], strict=True):
        assert torch.equal(parameter, kept)
    assert not network.training


def test_statistics_of_normalisations_are_those_of_the_best_epoch() -> None:
    seen: list[dict[str, Tensor]] = []
    scores = iter([0.0, 2.0, 1.0, 1.5])

    def score(network: nn.Module) -> float:
        seen.append({k: v.clone() for k, v in network.state_dict().items()})
        return next(scores)

    network, _ = fit(quick(max_epochs=4), score, first=(nn.BatchNorm1d(3),))
    kept = network.state_dict()
    assert "0.running_mean" in kept
    assert all(torch.equal(kept[name], seen[1][name]) for name in kept)
    assert not torch.equal(kept["0.running_mean"], seen[3]["0.running_mean"])


def test_training_stops_after_patience_and_one_more() -> None:
    scores = iter([1.0, 3.0, *[2.0] * 50])
    _, history = fit(quick(max_epochs=None, patience=4), lambda _: next(scores))
    assert history.stopped == "patience"
    assert len(history.score) == 2 + 5
    assert history.best_epoch == 1


def test_an_equal_score_is_no_improvement() -> None:
    _, history = fit(quick(max_epochs=None, patience=3), lambda _: 1.0)
    assert history.best_epoch == 0
    assert len(history.score) == 1 + 4


def test_max_epochs_ends_training() -> None:
    _, history = fit(quick(max_epochs=3))
    assert history.stopped == "max_epochs"
    assert len(history.loss) == len(history.score) == len(history.seconds) == 3


def test_time_limit_ends_training_and_keeps_what_it_has() -> None:
    def slow(network: nn.Module, batch: Tensor) -> Tensor:
        time.sleep(0.02)
        return network(torch.zeros(len(batch), 3)).square().mean()

    _, history = fit(quick(max_epochs=None, time_limit=0.05), loss=slow)
    assert history.stopped == "time_limit"
    assert len(history.score) >= 1


def test_interruption_keeps_the_best_so_far() -> None:
    scores = iter([1.0, 5.0, 2.0])

    def score(_: nn.Module) -> float:
        try:
            return next(scores)
        except StopIteration:
            raise KeyboardInterrupt from None

    network, history = fit(quick(max_epochs=None), score)
    assert history.stopped == "interrupted"
    assert history.best_epoch == 1
    assert len(history.loss) == len(history.score) == 3
    assert not network.training


def test_interruption_before_the_first_score_is_passed_on() -> None:
    def score(_: nn.Module) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(quick(), score)


def test_a_loss_that_is_not_finite_is_an_error_with_a_remedy() -> None:
    def loss(network: nn.Module, batch: Tensor) -> Tensor:
        return network(torch.zeros(len(batch), 3)).sum() * float("nan")

    with pytest.raises(TrainingError, match=r"epoch 0 is not a finite.*learning_rate"):
        fit(quick(), loss=loss)


def test_same_seed_gives_the_same_bits_and_another_seed_others() -> None:
    (a, first), (b, second), (c, _) = fit(quick()), fit(quick()), fit(quick(), seed=1)
    assert first.score == second.score
    pairs = zip(a.parameters(), b.parameters(), c.parameters(), strict=True)
    for x, y, z in pairs:
        assert torch.equal(x, y)
        assert not torch.equal(x, z)


def test_the_users_random_state_is_untouched() -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    fit(quick())
    assert torch.equal(torch.get_rng_state(), before)


def test_every_row_is_seen_once_an_epoch() -> None:
    seen: list[int] = []

    def loss(network: nn.Module, batch: Tensor) -> Tensor:
        seen.extend(batch.tolist())
        return network(torch.zeros(len(batch), 3)).square().mean()

    fit(quick(max_epochs=2), loss=loss)
    assert sorted(seen[:100]) == sorted(seen[100:]) == list(range(100))
    assert seen[:100] != seen[100:]


@pytest.mark.parametrize("epoch", [0, 2])
def test_freeze_is_called_once_before_its_epoch(epoch: int) -> None:
    log: list[str] = []

    def score(_: nn.Module) -> float:
        log.append("epoch")
        return float(len(log))

    fit(
        quick(max_epochs=4, freeze_after=epoch),
        score,
        freeze=lambda: log.append("freeze"),
    )
    assert log.count("freeze") == 1
    assert log.index("freeze") == epoch


def test_an_optimizer_of_ones_own_takes_the_steps() -> None:
    network = nn.Linear(2, 1)
    x, y = torch.randn(40, 2), torch.randn(40)
    steps = []

    class Descent:
        def step(self) -> None:
            steps.append([p.grad.clone() for p in network.parameters()])
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter -= 0.1 * parameter.grad

    def loss(batch: Tensor) -> Tensor:
        return (network(x[batch]).squeeze(-1) - y[batch]).square().mean()

    start = [p.detach().clone() for p in network.parameters()]
    job = Job(
        network,
        loss,
        lambda: network(x),
        lambda _: float(len(steps)),
        torch.Generator().manual_seed(0),
        Lane(torch.device("cpu")),
        optimizer=Descent(),
    )
    fit_networks([job], 40, quick(max_epochs=3))
    assert len(steps) == 3 * 2
    for before, after, *grads in zip(start, network.parameters(), *steps, strict=True):
        torch.testing.assert_close(after.detach(), before - 0.1 * sum(grads))


@pytest.mark.parametrize(
    "more",
    [
        {"schedule": "drop"},
        {"schedule": "flat-cosine"},
        {"weight_average": 3.0},
        {"gradient_clip": 1.0},
        {"betas": (0.9, 0.95)},
    ],
)
def test_settings_of_adamw_are_refused_with_another_optimizer(more: Any) -> None:
    network = nn.Linear(2, 1)
    job = Job(
        network,
        lambda batch: network(torch.zeros(len(batch), 2)).sum(),
        lambda: torch.zeros(1),
        lambda _: 0.0,
        torch.Generator().manual_seed(0),
        Lane(torch.device("cpu")),
        optimizer=torch.optim.SGD(network.parameters(), 0.1),
    )
    (name,) = more
    with pytest.raises(ParameterError, match=f"however {name}=.* its own: leave them"):
        fit_networks([job], 40, quick(**more))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_steps_equal_eager_ones_on_a_gpu() -> None:
    def run(*, captures: bool) -> list[float]:
        device = torch.device("cuda")
        x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0)).to(device)
        y = x.sum(1) ** 2
        with seeded(0, device) as order:
            network = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1)).to(
                device
            )

            def mse(batch: Tensor) -> Tensor:
                return (network(x[batch]).squeeze(-1) - y[batch]).square().mean()

            config = quick(max_epochs=5, batch_size=128)
            every = torch.arange(1000, device=device)
            job = Job(
                network,
                mse,
                lambda: mse(every)[None],
                lambda output: -output.item(),
                order,
                Lane(device, captures=captures),
            )
            return fit_networks([job], 1000, config)[0].score

    captured = run(captures=True)
    assert captured == pytest.approx(run(captures=False), rel=1e-4)


def test_a_drop_goes_back_to_the_best_and_on_in_smaller_steps() -> None:
    seen: list[list[Tensor]] = []
    scores = iter([0.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0])

    def score(network: nn.Module) -> float:
        seen.append([p.detach().clone() for p in network.parameters()])
        return next(scores)

    network, history = fit(quick(schedule="drop", patience=2, max_epochs=None), score)
    assert history.best_epoch == 1
    assert history.stopped == "patience"
    assert len(history.score) == 8  # 2, three without a better one, and three again

    def step(a: list[Tensor], b: list[Tensor]) -> float:
        return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))

    # After the drop it starts from the best weights, in steps ten times smaller.
    assert step(seen[5], seen[1]) < 0.3 * step(seen[2], seen[1])
    for parameter, kept in zip(network.parameters(), seen[1], strict=True):
        assert torch.equal(parameter, kept)


def test_flat_cosine_ends_with_the_smallest_steps() -> None:
    seen: list[list[Tensor]] = []

    def score(network: nn.Module) -> float:
        seen.append([p.detach().clone() for p in network.parameters()])
        return float(len(seen))

    fit(quick(schedule="flat-cosine", max_epochs=20), score)
    sizes = [
        sum(float((x - y).square().sum()) for x, y in zip(a, b, strict=True)) ** 0.5
        for a, b in itertools.pairwise(seen)
    ]
    assert sizes[-1] < 0.1 * min(sizes[:9])
    with pytest.raises(ValueError, match="max_epochs"):
        TrainingConfig(schedule="flat-cosine")


def test_the_average_of_weights_is_what_is_kept() -> None:
    def kept(**values: object) -> Tensor:
        network, _ = fit(quick(max_epochs=3, **values), lambda _: 1.0)  # of epoch 0
        return nn.utils.parameters_to_vector(network.parameters()).detach()

    torch.testing.assert_close(kept(weight_average=1e-3), kept())
    assert not torch.allclose(kept(weight_average=5.0), kept(), atol=1e-3)
