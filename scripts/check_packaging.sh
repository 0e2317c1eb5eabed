#!/usr/bin/env bash
# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
#
# check_packaging.sh: what can be said of the recipes for Spack, vcpkg and Conan, and of other files
# for tools that Debian does not have, without these tools: they can be read as Python, JSON, YAML and
# CMake, and name options that there are and the version in core/config.hpp. Without PyYAML the YAML
# is not read.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 - <<'END'
import ast, json, pathlib, re
try:
    import yaml
except ImportError:
    yaml = None
    print("YAML is not read: there is no PyYAML")

config = pathlib.Path("include/cohort/core/config.hpp").read_text()
version = ".".join(re.findall(r"#define COHORT_VERSION_\w+ (\d+)", config))
spack = "packaging/spack/repos/spack_repo/cohort/packages/cohort/package.py"
says = {
    "CITATION.cff": f"\nversion: {version}\n",
    "packaging/vcpkg/ports/cohort/vcpkg.json": f'"version-semver": "{version}"',
    spack: f'version("{version}", tag="v{version}")',
    "CHANGELOG.md": f"\n## {version}",
}
for name, text in says.items():
    assert text in pathlib.Path(name).read_text(), f"{name} does not say {text!r}"

for path in pathlib.Path("packaging").rglob("*.py"):
    ast.parse(path.read_text(), str(path))
for path in [*pathlib.Path("packaging").rglob("*.json"), *pathlib.Path(".devcontainer").iterdir()]:
    json.loads(path.read_text())
if yaml:
    for path in [*pathlib.Path("packaging").rglob("*.yaml"), pathlib.Path("CITATION.cff"),
                 *pathlib.Path(".github").rglob("*.yml")]:
        yaml.safe_load(path.read_text())

options = re.findall(r"^option\((COHORT_\w+)", pathlib.Path("CMakeLists.txt").read_text(), re.M)
for path in pathlib.Path("packaging").rglob("*"):
    if path.suffix in (".py", ".cmake"):
        for name in re.findall(r"[ \"D](COHORT_[A-Z_]*[A-Z])\b", path.read_text()):
            if name not in options and not name.startswith("COHORT_VERSION"):
                raise SystemExit(f"{path} names {name}, which is no option")
END

# The port as vcpkg would run it, with functions that do nothing.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/port.cmake" <<'END'
foreach(name IN ITEMS cmake_configure cmake_install cmake_config_fixup fixup_pkgconfig
    install_copyright)
  cmake_language(EVAL CODE "function(vcpkg_${name})\nendfunction()")
endforeach()
include(packaging/vcpkg/ports/cohort/portfile.cmake)
if(NOT EXISTS "${SOURCE_PATH}/include/cohort/cohort.hpp")
  message(FATAL_ERROR "there is no cohort in ${SOURCE_PATH}")
endif()
END
cmake -P "$scratch/port.cmake"
echo "the recipes can be read, and are of version $(sed -n 's/^version: //p' CITATION.cff)"
