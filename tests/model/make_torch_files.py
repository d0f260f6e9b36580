"""Makes the files of golden/torch_files, with which the reader of torch.save's files is tested: good ones, each beside
the same tensors as safetensors, and ones that must be refused. Run by hand where torch and safetensors are installed:

    python tests/model/make_torch_files.py
"""

import io
import json
import os
import pathlib
import zipfile
from collections import OrderedDict

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent / "golden" / "torch_files"
SHARDS = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]


class Tied(torch.nn.Module):
    """Its state dict has the attribute _metadata, one storage under two names, and buffers."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("positions", torch.arange(4).expand((1, -1)))


def every_type():
    numbers = torch.arange(6).reshape(2, 3)
    types = ["float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"]
    tensors = {name: numbers.to(getattr(torch, name)) for name in types}
    tensors["scalar"] = torch.tensor(1.5)
    tensors["empty"] = torch.empty(0, 3)
    tensors["of_one"] = torch.arange(4.0).reshape(4, 1).t()  # its strides are odd, and matter not
    tensors["row"] = tensors["float32"][1]  # a view into another's storage
    tensors["text in Ünicode"] = torch.ones(2, dtype=torch.float16)
    return tensors


def save_both(name, tensors):
    torch.save(tensors, HERE / f"{name}.bin")
    save_file({key: value.detach().clone().contiguous() for key, value in tensors.items()}, HERE / f"{name}.safetensors")


def save_sharded(tensors):
    directory = HERE / "sharded"
    directory.mkdir(exist_ok=True)
    weight_map = {}
    for shard, part in zip(SHARDS, (list(tensors)[::2], list(tensors)[1::2])):
        torch.save(OrderedDict((key, tensors[key]) for key in part), directory / shard)
        weight_map.update({key: shard for key in part})
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")


class Malicious:
    def __reduce__(self):
        return os.system, ("echo must never run",)


def save_refused(tensors):
    torch.save({"a": tensors["float32"], "b": Malicious()}, HERE / "malicious.bin")
    torch.save({"epoch": 3, "lr": 0.5, "betas": [1, 2], "model": tensors}, HERE / "nested.bin")
    torch.save({"a": tensors["float32"].t()}, HERE / "transposed.bin")
    torch.save({"a": tensors["float32"].to(torch.float8_e4m3fn)}, HERE / "float8.bin")
    torch.save({"a": torch._neg_view(tensors["float32"])}, HERE / "negative.bin")  # a flag says that signs turn
    torch.save({"a": tensors["float32"]}, HERE / "legacy.bin", _use_new_zipfile_serialization=False)
    torch.save({"a": tensors["float32"]}, HERE / "protocol4.bin", pickle_protocol=4)
    torch.save([tensors["float32"]], HERE / "list.bin")
    buffer = io.BytesIO()
    torch.save({"a": tensors["float32"]}, buffer)
    with zipfile.ZipFile(buffer) as stored, zipfile.ZipFile(HERE / "compressed.bin", "w", zipfile.ZIP_DEFLATED) as out:
        for name in stored.namelist():
            out.writestr(zipfile.ZipInfo(name), stored.read(name), zipfile.ZIP_DEFLATED)


def main():
    torch.manual_seed(0)
    HERE.mkdir(parents=True, exist_ok=True)
    module = Tied()
    save_both("state_dict", module.state_dict())
    torch.save(dict(module.named_parameters(remove_duplicate=False)), HERE / "parameters.bin")
    tensors = every_type()
    save_both("every_type", tensors)
    save_sharded(tensors)
    save_refused(tensors)


if __name__ == "__main__":
    main()
