// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cohort/comm/communicator.hpp>

#include <functional>

namespace blocking_test {

/// In a file that reads nothing of Asio: each kind of collective that a backend may take, and some
/// that it may not.
void each_kind(const cohort::communicator& world, const std::function<void(bool)>& check);

/// Messages to the neighbours in a ring, in the same file.
void each_message(const cohort::communicator& world, const std::function<void(bool)>& check);

}  // namespace blocking_test
