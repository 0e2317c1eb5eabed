// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The body of what makes memory that the devices' backend has on every rank.

#include <cohort/coordinator/verbs/verbs.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace cohort::coordination {

struct add_arena_body : submitting_body {
  using signature = void(std::exception_ptr, std::shared_ptr<comm::device_arena>);

  add_arena_body(operation_name name_, std::size_t bytes_)
      : submitting_body(std::move(name_)), bytes(bytes_) {}

  void describe(task& of, coordination::signature& sig, const instance&) {
    sig.kind = op_kind::arena_add;
    sig.flags |= protocol::signature_flag::alone;
    describe_element<std::byte>(sig);
    sig.dimensions = shape{static_cast<std::int64_t>(bytes)};
    of.use_device();
    of.row_bytes = bytes;
    of.context = &made;
    if (bytes != 0 && std::in_range<std::int64_t>(bytes)) return;
    of.fail(std::make_exception_ptr(
        error(errc::invalid_argument, "an arena of " + std::to_string(bytes) + " bytes")));
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::forward<Handler>(handler)(std::move(why), std::move(made));
  }

  std::size_t bytes;
  std::shared_ptr<comm::device_arena> made;
};

}  // namespace cohort::coordination
