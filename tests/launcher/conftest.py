"""The launcher's modules, imported as deploy/baton imports them."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy"))
