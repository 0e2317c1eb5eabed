// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The umbrella header alone.

#include <cohort/cohort.hpp>

int main() {}
