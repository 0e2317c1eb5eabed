// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Exceptions that travel, where the codes of Asio are known too.

#include <cohort/core/asio.hpp>
#include <cohort/core/exception.hpp>

#include <exception>
#include <string_view>

namespace cohort::progress {

/// The categories of Asio are registered with the first exception that travels.
template <class Any = void>
void register_categories() {
  static const bool done = [] {
    register_category(asio::error::get_system_category());
    register_category(asio::error::get_addrinfo_category());
    register_category(asio::error::get_netdb_category());
    register_category(asio::error::get_misc_category());
    return true;
  }();
  static_cast<void>(done);
}

/// As in `core/exception.hpp`.
template <class Any = void>
void encode_exception(wire::writer& out, const std::exception_ptr& thrown, int rank,
                      std::string_view host) {
  register_categories();
  cohort::encode_exception(out, thrown, rank, host);
}

template <class Any = void>
[[nodiscard]] std::exception_ptr decode_exception(wire::reader& in) {
  register_categories();
  return cohort::decode_exception(in);
}

}  // namespace cohort::progress
