"""Options and fixtures of all Python tests."""
import pathlib
import shutil
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]


def pytest_addoption(parser):
    parser.addoption("--build", default="build/dev", help="build folder to test, e.g. build/asan")


def pytest_configure(config):
    config.addinivalue_line("markers", "asan: also run on the sanitizer build")


@pytest.fixture(scope="session")
def build(request):
    """The build folder as an absolute path."""
    path = pathlib.Path(request.config.getoption("--build"))
    path = path if path.is_absolute() else ROOT / path
    if not (path / "bin").is_dir():
        pytest.fail(f"{path}/bin is missing: build first, or name another folder with --build")
    return path


@pytest.fixture
def runtime():
    """An empty runtime directory; its path is short, because sockets stand in it."""
    path = tempfile.mkdtemp(prefix="baton-t-", dir="/tmp")
    yield pathlib.Path(path)
    shutil.rmtree(path, ignore_errors=True)
