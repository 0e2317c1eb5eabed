// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Keys for the tests of the rendezvous.

#include <cohort/rendezvous/vocabulary.hpp>

#include <cstdint>
#include <string_view>

namespace rendezvous_test {

using cohort::rendezvous_key;

inline rendezvous_key key_of(int source, int destination, std::string_view name,
                             std::uint64_t iteration = 0) {
  rendezvous_key key;
  key.source = source;
  key.destination = destination;
  key.name = name;
  key.iteration = iteration;
  return key;
}

}  // namespace rendezvous_test
