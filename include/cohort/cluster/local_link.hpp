// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages of a process to itself.

#include <cohort/cluster/link.hpp>
#include <cohort/core/asio.hpp>

#include <asio/buffer.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// One end of a pair: what is sent here arrives at the other end, by the loop.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_local_link final : public link {
 public:
  using local_link = basic_local_link;
  basic_local_link(asio::io_context& io, std::size_t max_message) : link(max_message), io_(io) {}

  static std::pair<std::shared_ptr<local_link>, std::shared_ptr<local_link>> pair(
      asio::io_context& io, std::size_t max_message) {
    auto one = std::make_shared<local_link>(io, max_message);
    auto two = std::make_shared<local_link>(io, max_message);
    one->other_ = two;
    two->other_ = one;
    return {std::move(one), std::move(two)};
  }

 private:
  void read() override {}
  void write(const std::vector<asio::const_buffer>& what) override {
    asio::post(io_, [self = shared_from_this(), this, &what] {
      if (const auto other = other_.lock(); other && !ended()) {
        for (const asio::const_buffer& each : what) {
          const auto* const begin = static_cast<const std::byte*>(each.data());
          if (!other->arrived({}, std::span(begin, each.size()))) break;
        }
      }
      written({});
    });
  }
  void close_stream() noexcept override {}

  asio::io_context& io_;
  std::weak_ptr<local_link> other_;
};
using local_link = basic_local_link<void>;

}  // namespace cohort::cluster
