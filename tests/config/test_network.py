"""Shapes of networks refuse what cannot be, and survive a file."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tabr.config import (
    STEPS,
    EmbeddingConfig,
    NetworkConfig,
    RetrievalConfig,
    network_config,
)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RetrievalConfig(similarity="cosine"),
            "similarity must be 'l2' or 'dot'",
        ),
        (lambda: RetrievalConfig(value=()), "each at most once"),
        (lambda: RetrievalConfig(value=("label", "label")), "each at most once"),
        (lambda: RetrievalConfig(own_query=True), "set own_query=False"),
        (lambda: EmbeddingConfig("ple"), "embedding must be"),
        (lambda: EmbeddingConfig(width=0), "`width > 0` must hold, however: width=0"),
        (lambda: NetworkConfig(dropout=1.0), "`0 <= dropout < 1` must hold"),
        (lambda: NetworkConfig(encoder_blocks=-1), "`encoder_blocks >= 0` must hold"),
    ],
)
def test_a_wrong_value_is_named_with_its_rule(make, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make()


def test_defaults_are_the_published_tabr_s() -> None:
    network = NetworkConfig()
    assert (network.width, network.hidden) == (265, 530)
    assert (network.encoder_blocks, network.predictor_blocks) == (0, 1)
    assert network.retrieval == STEPS["step-4"]


@pytest.mark.parametrize("embedding", [None, EmbeddingConfig("plr", 5)])
@pytest.mark.parametrize("retrieval", STEPS.values())
def test_a_network_config_survives_as_plain_values(embedding, retrieval) -> None:
    config = NetworkConfig(width=9, embedding=embedding, retrieval=retrieval)
    assert network_config(json.loads(json.dumps(dataclasses.asdict(config)))) == config
