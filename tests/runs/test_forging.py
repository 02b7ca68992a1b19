"""Hostile files: a right digest does not help, wrong content is refused and never executed."""

import functools
import json

import numpy as np
import pytest
import safetensors.numpy
from runs.cases import assert_same

import entroplay as ep
from entroplay.runs import container
from entroplay.runs.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from entroplay.runs.container import FileFormatError


def forge(path, change, *, kind="solution", schema=container.SCHEMA):
    """Rewrite a file with other content and a right digest, as a forger can."""
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(json.loads(raw[8:end])["__metadata__"]["entroplay"])
    content, tensors = header["content"], safetensors.numpy.load(raw)
    change(content["fields"], tensors)
    digest = container.digest(container.Contents(kind, content, tensors))
    text = container._json({"schema": schema, "kind": kind, "content": content, "sha256": digest})
    path.write_bytes(safetensors.numpy.save(tensors, {"entroplay": text}))


def keep(fields, tensors):
    pass


def nest(fields, tensors):
    for _ in range(400):
        fields["seed"] = {"list": [fields["seed"]]}


def put(where, value):
    def change(fields, tensors):
        *parents, last = where.split(".")
        node = functools.reduce(lambda node, name: node[name]["fields"], parents, fields)
        node[last] = value

    return change


def array(name, value):
    return lambda fields, tensors: tensors.update({name: value})


FORGERIES = {
    "nothing": (keep, None),
    "NaN among the particles": (
        array("particles", np.array([[1.0], [np.nan]], np.float32)),
        r"particles\[1, 0\] is nan",
    ),
    "infinite data": (
        array("problem.loss.y", np.array([np.inf, 0], np.float32)),
        r"problem\.loss\.y\[0\] is inf",
    ),
    "a text for a number": (put("problem.temperature", "hot"), "temperature of FiniteSum must be"),
    "a negative temperature": (put("problem.temperature", -1.0), "'temperature'"),
    "a NaN temperature": (put("problem.temperature", float("nan")), "'temperature'"),
    "a loss for a solver": (put("solver", {"class": "NegLog", "fields": {}}), "solver of Solution"),
    "a class that is not listed": (put("solver", {"class": "Popen", "fields": {}}), "Popen"),
    "a base class": (put("solver", {"class": "Solver", "fields": {}}), "Solver"),
    "a field that is not declared": (put("__class__", 1), "__class__"),
    "a property for a field": (put("problem.features.dim", 1), "dim"),
    "a reason that is none": (put("status.reason", {"reason": "bored"}), "bored"),
    "a node that is none": (put("status.reason", {"eval": "1"}), "no known kind"),
    "an array that is not there": (put("seed", {"array": "numpy"}), "seed"),
    "an array too many": (array("extra", np.ones(1)), "no arrays other than its own"),
    "a NumPy array for a JAX one": (put("moments", {"array": "numpy"}), "moments of Solution"),
    "whole numbers for particles": (
        array("particles", np.ones((2, 1), np.int32)),
        "particles of Solution",
    ),
    "a wrong rank": (array("particles", np.ones(2, np.float32)), "particles of Solution"),
    "particles of another dimension": (
        array("particles", np.ones((2, 3), np.float32)),
        "do not fit",
    ),
    "too few weights": (array("weights", np.ones(1, np.float32)), "do not fit"),
    "too many moments": (array("moments", np.ones(3, np.float32)), "do not fit"),
    "a field too few": (lambda fields, tensors: fields.pop("seed"), "seed"),
    "a well": (nest, "RecursionError"),
}


@pytest.mark.parametrize("name", list(FORGERIES))
def test_forged_content_is_refused(name, path, small):
    change, message = FORGERIES[name]
    ep.save(small, path)
    forge(path, change)
    if message is None:
        assert_same(small, ep.load(path))
        return
    with pytest.raises(FileFormatError, match=message):
        ep.load(path)


def test_other_versions_kinds_and_files_are_told_apart(path, small):
    with pytest.raises(FileNotFoundError):
        ep.load(path)
    ep.save(small, path)
    forge(path, keep, schema=2)
    with pytest.raises(
        FileFormatError, match="written by a newer version of entroplay: schema 2, this one reads 1"
    ):
        ep.load(path)
    for schema in (0, "1", None, True, 1.5, [1]):
        ep.save(small, path)
        forge(path, keep, schema=schema)
        with pytest.raises(FileFormatError):
            ep.load(path)
    ep.save(small, path)
    with pytest.raises(FileFormatError, match="holds a solution, not a checkpoint"):
        read_checkpoint(path)
    forge(path, keep, kind="checkpoint")
    with pytest.raises(FileFormatError, match="a Checkpoint was expected"):
        read_checkpoint(path)
    write_checkpoint(path, Checkpoint("", 0, [], {}))
    with pytest.raises(FileFormatError, match="holds a checkpoint, not a solution"):
        ep.load(path)
    safetensors.numpy.save_file({"weights": np.ones(3)}, path)
    with pytest.raises(
        FileFormatError, match="a safetensors file, but not one that entroplay wrote"
    ):
        ep.load(path)
