"""`fedcohort data convert`: the dictionary stays the same, and no file is replaced."""

from __future__ import annotations

import pytest

from fedcohort.apps import converting
from fedcohort.data.dictionary import Dictionary, Variable
from fedcohort.data.read.dictionaries import read_dictionary, text
from fedcohort.protocol import FedcohortError


def test_conversion_keeps_the_dictionary_and_replaces_nothing(tmp_path):
    age, sex = Variable("age", "integer", unit="years"), Variable("sex", "category", ("f", "m"))
    yaml_file, json_file = tmp_path / "dictionary.yaml", tmp_path / "d.json"
    yaml_file.write_text(text(Dictionary({"age": age, "sex": sex})), encoding="utf-8")
    converting.convert(yaml_file, json_file)
    assert read_dictionary(json_file) == read_dictionary(yaml_file)
    for out, message in ((json_file, "exists"), (tmp_path / "d.csv", "is written as .yaml, .yml")):
        with pytest.raises(FedcohortError, match=message):
            converting.convert(yaml_file, out)
