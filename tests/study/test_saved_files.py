"""A model's files, as damage, accidents and hostile hands leave them: one line each."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import fedcohort as fc
import in_process
from fedcohort.study.results import saved
from fedcohort.study.results.own_models import OwnModels


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Path:
    """Return a folder with a saved model, and a table to apply it to."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(60, 10, 90), "bmi": rng.normal(25, 4, 90)})
    frame["time"], frame["died"] = rng.exponential(5, 90), rng.integers(0, 2, 90)
    frame["site"] = ["a", "b", "c"] * 30
    folder = tmp_path_factory.mktemp("kept")
    fed = fc.simulate(frame, sites="site", outcome=fc.Survival("time", "died"))
    fc.fit("cox", fed, scale="standard").save(folder / "model")
    frame.head(3).to_csv(folder / "t.csv", index=False)
    return folder


def refused(kept: Path, folder: Path) -> str:
    """Apply the model in a folder; return what is said."""
    code, out, said = in_process.command("predict", str(folder), str(kept / "t.csv"))
    assert (code, out) == (2, ""), said
    assert said.count("\n") == 1
    assert len(said) < 400
    return said


@pytest.fixture
def model(kept, tmp_path) -> Path:
    return shutil.copytree(kept / "model", tmp_path / "model")


def changed(model: Path, change) -> None:
    """Change what model.json holds, as someone would who can write NaN there."""
    text = json.loads((model / "model.json").read_text())
    change(text)
    (model / "model.json").write_text(json.dumps(text))


def test_a_saved_model_as_it_is_predicts(kept, model):
    assert in_process.command("predict", str(model), str(kept / "t.csv"))[0] == 0


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("scale", 0.0, "column 'age': its scale is 0, not positive"),
        ("scale", -1.5, "column 'age': its scale is -1.5, not positive"),
        ("scale", float("nan"), "damaged"),
        ("shift", float("inf"), "damaged"),
        ("scale", "1", "its scale is '1', no finite number"),
        ("scale", None, "its scale is None, no finite number"),
        ("fill", 10**400, "no finite number"),
        ("low", [1.0], "its low"),
        ("knots", [0.0, None], "its knots"),
    ],
)
def test_a_number_of_the_preprocessing_that_is_not_finite_or_a_scale_of_0_is_refused(
    kept, model, key, value, says
):
    changed(model, lambda text: text["design"]["columns"][0].update({key: value}))
    assert says in refused(kept, model)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_array_of_the_model_that_is_not_finite_is_refused_even_with_its_checksum(
    kept, model, bad
):
    arrays = load_file(model / "model.safetensors")
    name = max(arrays, key=lambda k: arrays[k].size)
    arrays[name].flat[0] = bad
    save_file(arrays, model / "model.safetensors")
    assert "SHA-256" in refused(kept, model)
    body = (model / "model.safetensors").read_bytes()
    changed(model, lambda text: text.update(sha256=hashlib.sha256(body).hexdigest()))
    assert f"{name!r} is not finite" in refused(kept, model)


@pytest.mark.parametrize("times", [[1.0] * 300_000, [0.0], [-1.0], [float("nan")], "abc", 3, {}])
def test_times_that_a_model_notes_are_few_positive_numbers(kept, model, times):
    changed(model, lambda text: text["notes"].update(times=times))
    said = refused(kept, model)
    assert "notes.times is not a list of 100 positive numbers or fewer" in said or "damaged" in said


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_pipe_or_a_device_in_place_of_a_file_is_named_and_not_waited_for(kept, model, name):
    (model / name).unlink()
    os.mkfifo(model / name)
    assert f"{name} is no file" in refused(kept, model)
    (model / name).unlink()
    (model / name).symlink_to("/dev/zero")
    assert f"{name} is no file" in refused(kept, model)
    (model / name).unlink()
    (model / name).mkdir()
    assert f"{name} is no file" in refused(kept, model)


@pytest.mark.parametrize("name", ["model.json", "model.safetensors"])
def test_a_file_larger_than_any_model_is_not_read(kept, model, name):
    with (model / name).open("r+b") as file:
        file.truncate(saved.LARGEST[name] + 1)  # a hole: it takes no room
    assert f"{name} has" in refused(kept, model)


@pytest.mark.parametrize(
    "text",
    [b"[" * 200_000, b'{"a":' * 200_000, b'{"format": 3, "x": ' + b"9" * 9000 + b"}", b"\xff", b""],
)
def test_json_that_is_nested_deeply_or_no_json_is_one_line(kept, model, text):
    (model / "model.json").write_bytes(text)
    assert "damaged" in refused(kept, model)


def test_deep_nesting_inside_a_model_is_one_line(kept, model):
    text = (model / "model.json").read_text()
    deep = '"dropped": ' + '{"a":' * 990 + "1" + "}" * 990
    (model / "model.json").write_text(text.replace('"dropped": {}', deep))
    refused(kept, model)


class Extra:
    """A model with files of other programs; the rest is another model's."""

    def __init__(self, model, names):
        self.model, self.names = model, names

    def __getattr__(self, name):
        return getattr(self.model, name)

    def files(self):
        return {name: name.encode() for name in self.names}


def with_files(kept, *names):
    parts = saved.read(kept / "model")
    return replace(parts, model=Extra(parts.model, names))


def test_files_of_other_programs_are_beside_the_model_and_need_not_be_there_to_read_it(
    kept, tmp_path
):
    found = saved.write(tmp_path / "m", with_files(kept, "xgboost.json"))
    assert sorted(found) == sorted(p.name for p in (tmp_path / "m").iterdir())
    assert found[-1] == "model.json"  # a folder with it is whole
    assert (tmp_path / "m" / "xgboost.json").read_bytes() == b"xgboost.json"
    (tmp_path / "m" / "xgboost.json").unlink()
    assert saved.read(tmp_path / "m").method == "cox"


def test_a_site_keeps_them_with_its_own_model(kept, tmp_path):
    models = OwnModels(tmp_path)
    models.keep("a/b", with_files(kept, "xgboost.json"))
    place = tmp_path / "a" / "b"
    assert {p.name for p in place.iterdir()} == {"model.json", "model.safetensors", "xgboost.json"}
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in place.iterdir())


@pytest.mark.parametrize("name", ["model.json", "card.md", "../up", "a/b", ".hidden", "", "ü"])
def test_such_a_file_has_a_plain_name_of_its_own(kept, tmp_path, name):
    with pytest.raises(ValueError, match="another name"):
        saved.write(tmp_path / "m", with_files(kept, name))
    assert not (tmp_path / "m").exists()
