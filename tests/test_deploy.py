import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def locked(name: str) -> dict[str, Requirement]:
    """The packages of a lock file, for the interpreter of the container."""
    text = (DEPLOY / name).read_text("utf-8").replace("\\\n", " ")
    packages = {}
    for line in text.splitlines():
        pin, *hashes = re.split(r"\s+--hash=", line.strip())
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", h) for h in hashes)
        requirement = Requirement(pin)
        in_container = {"python_full_version": "3.11.9", "python_version": "3.11"}
        if requirement.marker is None or requirement.marker.evaluate(in_container):
            packages[requirement.name] = requirement
    return packages


@pytest.mark.parametrize("part", ["dependencies", "serve", "report", "build"])
def test_lock_of_the_container_has_what_the_package_needs(part):
    packages = locked("requirements.lock")
    extras = PROJECT["project"]["optional-dependencies"]
    needs = {
        "dependencies": PROJECT["project"]["dependencies"],
        "build": PROJECT["build-system"]["requires"],
    } | extras
    for text in needs[part]:
        need = Requirement(text)
        (version,) = [s.version for s in packages[need.name.lower()].specifier]
        assert need.specifier.contains(version), need


def test_container_installs_nothing_without_a_checksum():
    text = (DEPLOY / "Containerfile").read_text("utf-8").replace("\\\n", " ")
    installs = re.findall(r"pip install [^&\n]*", text)
    assert len(installs) == 3
    for install in installs:
        has_checksums = "--require-hashes" in install
        assert has_checksums or "--no-deps --no-build-isolation /src" in install


def test_lock_of_the_list_of_packages_has_its_maker():
    assert "cyclonedx-bom" in locked("sbom.lock")
