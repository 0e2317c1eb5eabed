# Copyright (c) 2026 The cohort authors
# SPDX-License-Identifier: BSL-1.0
import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Cohort(CMakePackage):
    """Await MPI on Asio: a header-only C++20 coroutine library for HPC."""

    # The clone that this file lies in.
    git = f"file://{pathlib.Path(__file__).resolve().parents[7]}"

    license("BSL-1.0")

    version("main", branch="main")
    version("0.1.0", tag="v0.1.0")

    variant("compiled", default=False, description="Install the library cohort::compiled too")
    variant("nccl", default=False, description="Bring CUDA and NCCL for the layers on devices")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("asio@1.22.1:")
    depends_on("mpi@3.1:")
    depends_on("cuda@12:", when="+nccl")
    depends_on("nccl@2.18.1:", when="+nccl")
    depends_on("catch2@2.13:", type="test")

    conflicts("%gcc@:11", msg="cohort needs coroutines as g++ 12 has them")
    conflicts("%clang@:15", msg="cohort needs clang 16 or newer")

    def cmake_args(self):
        return [
            self.define("COHORT_BUILD_TESTS", self.run_tests),
            self.define("COHORT_BUILD_EXAMPLES", False),
            self.define("COHORT_BUILD_BENCHMARKS", False),
            self.define_from_variant("COHORT_CUDA", "nccl"),
            self.define_from_variant("COHORT_INSTALL_COMPILED", "compiled"),
        ]
