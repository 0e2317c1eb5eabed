// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The test macros of Catch2, the same whether version 2.13 or version 3 is installed.

#if __has_include(<catch2/catch_test_macros.hpp>)

#include <catch2/catch_approx.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

// Version 2 has it in this namespace, and our tests are written that way.
using Catch::Approx;

#else

#include <catch2/catch.hpp>

namespace Catch::Matchers {

/// Version 3's name for what version 2 calls `Contains`.
inline auto ContainsSubstring(const std::string& part) { return Catch::Contains(part); }

}  // namespace Catch::Matchers

#endif
