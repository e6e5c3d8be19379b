"""A small complete model folder whose files a test may damage: tiny-moe with a tokenizer
of single bytes. The checkpoint is kept as header and data until it is written."""
import json
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEIGHTS = ROOT / "tests/golden/tiny-moe"
TOKENIZER = ROOT / "deploy/demo-model"


def read_header(path):
    """(header, data) of a safetensors file."""
    blob = path.read_bytes()
    size, = struct.unpack("<Q", blob[:8])
    return json.loads(blob[8:8 + size]), blob[8 + size:]


def byte_tokenizer():
    """The demo's tokenizer with its 256 byte symbols and the special tokens alone."""
    t = json.loads((TOKENIZER / "tokenizer.json").read_text())
    t["model"]["vocab"] = {text: i for text, i in t["model"]["vocab"].items() if i < 256}
    t["model"]["merges"] = []
    for i, token in enumerate(t["added_tokens"]):
        token["id"] = 256 + i
    return t


class SmallModel:
    """Everything is a plain value that may be changed before write()."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.header, data = read_header(WEIGHTS / "model.safetensors")
        self.header.pop("__metadata__", None)
        # name -> [dtype, shape, bytes], in the order of the file
        self.tensors = {name: [t["dtype"], t["shape"], data[slice(*t["data_offsets"])]]
                        for name, t in self.header.items()}
        self.config = json.loads((WEIGHTS / "config.json").read_text())
        self.tokenizer = byte_tokenizer()
        self.tokenizer_config = json.loads((TOKENIZER / "tokenizer_config.json").read_text())
        self.generation = {"eos_token_id": [258, 256]}

    def lay_out(self, names=None):
        """(header, data) of these tensors, all by default."""
        header, parts, at = {}, [], 0
        for name in names or self.tensors:
            dtype, shape, data = self.tensors[name]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
            parts.append(data)
            at += len(data)
        return header, b"".join(parts)

    def write(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, value in (("config", self.config), ("tokenizer", self.tokenizer),
                            ("tokenizer_config", self.tokenizer_config),
                            ("generation_config", self.generation)):
            (self.folder / f"{name}.json").write_text(json.dumps(value))
        self.save(*self.lay_out())

    def save(self, header, data, file="model.safetensors"):
        """header: a dict, or text that need not be JSON."""
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        (self.folder / file).write_bytes(struct.pack("<Q", len(text)) + text + data)

    def save_shards(self):
        """Two shards and their index; returns the index for a test to change."""
        names = list(self.tensors)
        index = {"metadata": {}, "weight_map": {}}
        for i, part in enumerate((names[::2], names[1::2]), 1):
            file = f"model-0000{i}-of-00002.safetensors"
            self.save(*self.lay_out(part), file)
            index["weight_map"].update(dict.fromkeys(part, file))
        (self.folder / "model.safetensors").unlink()
        return index

    def save_index(self, index):
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
