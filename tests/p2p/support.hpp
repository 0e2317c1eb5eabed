// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The names that the tests of messages use.

#include <cohort/comm.hpp>

#include <chrono>

#include "support/catch.hpp"
#include "support/world.hpp"

namespace p2p_test {

using namespace std::chrono_literals;
using cohort::communicator;
using cohort_test::code_of;
using cohort_test::left_of;
using cohort_test::meet;
using cohort_test::on_world;
using cohort_test::right_of;
using task = asio::awaitable<void>;

}  // namespace p2p_test
