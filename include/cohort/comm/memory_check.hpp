// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Whether a buffer that a verb takes for the host's lies in device memory.

#include <atomic>

namespace cohort::comm {

using memory_question = bool (*)(const void*) noexcept;

/// Answers whether a pointer is into device memory; null where no layer that knows is part of the
/// program. `cohort/staging.hpp` sets it.
[[nodiscard]] inline std::atomic<memory_question>& device_memory_question() noexcept {
  static constinit std::atomic<memory_question> asked{nullptr};
  return asked;
}

/// The name of the first buffer of a body that is in device memory, or null. Asks once for each.
template <class Body>
[[nodiscard]] const char* in_device_memory(Body& body) {
  const memory_question question = device_memory_question().load(std::memory_order_acquire);
  if (question == nullptr) return nullptr;
  const auto is_there = [&](auto& argument) {
    const auto view = argument.view();
    return view.count != 0 && question(view.data);
  };
  if constexpr (requires { body.data.view().data; }) {
    if (is_there(body.data)) return "buffer";
  }
  if constexpr (requires { body.in.view().data; }) {
    if (is_there(body.in)) return "in";
  }
  if constexpr (requires { body.out.view().data; }) {
    if (is_there(body.out)) return "out";
  }
  return nullptr;
}

}  // namespace cohort::comm
