# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
"""A recipe of Conan 2 for the clone that it lies in. MPI is the system's."""
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load

required_conan_version = ">=2.0"


class CohortConan(ConanFile):
    name = "cohort"
    description = "Await MPI on Asio: a header-only C++20 coroutine library for HPC"
    license = "BSL-1.0"
    topics = ("mpi", "asio", "coroutines", "hpc", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    no_copy_source = True

    def _clone(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._clone(), "include", "cohort", "core", "config.hpp"))
        parts = re.findall(r"#define COHORT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text)
        self.version = ".".join(parts)

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "packaging/pkgconfig/*"):
            copy(self, pattern, self._clone(), self.export_sources_folder)

    def requirements(self):
        self.requires("asio/[>=1.22.1 <2]")

    def validate(self):
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for part in ("TESTS", "EXAMPLES", "BENCHMARKS"):
            toolchain.cache_variables[f"COHORT_BUILD_{part}"] = False
        toolchain.cache_variables["COHORT_CUDA"] = False
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_id(self):
        self.info.clear()

    def package_info(self):
        # The package's own configuration has a target for each layer.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "cohort")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
