// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The call that runs all test cases of a program; Catch2 itself is compiled only behind it.

namespace cohort_test {

/// Runs the test cases that the command line asks for, in the order of their declaration. The
/// result is 0 if all of them passed.
int run_catch(int argc, char** argv);

}  // namespace cohort_test
