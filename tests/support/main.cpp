// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#include "support/catch_run.hpp"

int main(int argc, char** argv) { return cohort_test::run_catch(argc, argv); }
