"""The MIG table agrees with the counts that enumeration by hand and the driver's own limits give."""

from __future__ import annotations

import pytest

from solver.model.mig import (
    PlacedInstance,
    ProfileKey,
    cost_milli_gpu,
    geometries,
    is_valid,
    maximal_geometries,
    mig_model,
    mig_profile,
)
from solver.model.mig_table import MODELS, MigModel

EIGHT_SLICES = [model for model in MODELS if model.memory_slices == 8]


def maximal_count(model: MigModel, *, doubles: bool = True, media: bool = True) -> int:
    profiles = [
        profile
        for profile in model.profiles
        if (media or not profile.attributes) and (doubles or profile.profile_id != 15)
    ]
    return len(set(maximal_geometries(model, profiles)))


@pytest.mark.parametrize("model", EIGHT_SLICES, ids=lambda model: model.name)
def test_maximal_geometries_of_eight_slices(model: MigModel) -> None:
    assert maximal_count(model, doubles=False, media=False) == 19
    assert maximal_count(model, media=False) == 78
    assert maximal_count(model) == 239


def test_maximal_geometries_of_four_slices() -> None:
    assert maximal_count(mig_model("A30-24GB"), media=False) == 5
    assert maximal_count(mig_model("A30-24GB")) == 17


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_most_instances_of_a_profile_are_those_that_fit_side_by_side(model: MigModel) -> None:
    for profile in model.profiles:
        assert max(len(placed) for placed in geometries(model, [profile])) == profile.instances_max


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_compute_slices_always_suffice_where_memory_slices_do(model: MigModel) -> None:
    for placed in geometries(model):
        assert is_valid(model, placed)
        assert sum(instance.profile.compute_slices for instance in placed) <= model.compute_slices
        assert all(instance.end <= model.memory_slices for instance in placed)


def test_keys_are_unique_and_names_are_not_keys() -> None:
    one_eighth = mig_profile(ProfileKey("A100-80GB", 1, 1))
    two_eighths = mig_profile(ProfileKey("A100-40GB", 1, 2))
    assert one_eighth.name == two_eighths.name == "1g.10gb"
    assert cost_milli_gpu(mig_model("A100-80GB"), one_eighth) == 125
    assert cost_milli_gpu(mig_model("A100-40GB"), two_eighths) == 250
    assert cost_milli_gpu(mig_model("A30-24GB"), mig_profile(ProfileKey("A30-24GB", 1, 1))) == 250
    keys = [(model.name, p.compute_slices, p.memory_slices, p.attributes) for model in MODELS for p in model.profiles]
    assert len(keys) == len(set(keys)) == 47


def test_invalid_sets_are_refused() -> None:
    model = mig_model("H100-80GB")
    small, media, half = (mig_profile(ProfileKey("H100-80GB", *key)) for key in ((1, 1), (1, 1, ("me",)), (3, 4)))
    assert is_valid(model, [PlacedInstance(4, half), PlacedInstance(0, small)])
    assert not is_valid(model, [PlacedInstance(4, half), PlacedInstance(6, small)]), "they overlap"
    assert not is_valid(model, [PlacedInstance(7, small)]), "slice 7 can't be had by a small instance"
    assert not is_valid(model, [PlacedInstance(2, half)]), "the driver lists no such start"
    assert not is_valid(model, [PlacedInstance(0, media), PlacedInstance(1, media)]), "the media engines exist once"
    assert not is_valid(mig_model("A30-24GB"), [PlacedInstance(0, small)]), "another model's profile"
