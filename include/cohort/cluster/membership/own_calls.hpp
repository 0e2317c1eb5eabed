// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The manager's process as one that functions are called in: by workers, and by itself.

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/cluster/calls/call_server.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link/link.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

namespace cohort::cluster {

/// Must be owned by a shared_ptr.
template <class Any>
class basic_own_calls : public std::enable_shared_from_this<basic_own_calls<Any>> {
 public:
  /// `changed` is told when a callee here has ended.
  basic_own_calls(asio::io_context& io, std::shared_ptr<call_client> calls, event changed)
      : calls_(std::move(calls)),
        changed_(std::move(changed)),
        server_(std::make_shared<call_server>(io)) {}
  basic_own_calls(const basic_own_calls&) = delete;
  basic_own_calls& operator=(const basic_own_calls&) = delete;

  void begin(asio::io_context& io, std::size_t max_message, call_place where) {
    server_->place(std::move(where));
    server_->on_idle([self = this->weak_from_this()] {
      if (const auto here = self.lock()) here->changed_.notify();
    });
    std::tie(near_, far_) = local_link::pair(io, max_message);
    near_->start(
        [self = this->weak_from_this()](message&& each) {
          if (const auto here = self.lock()) here->answered(std::move(each));
        },
        [](std::error_code) {});
    far_->start(
        [self = this->weak_from_this()](message&& each) {
          if (const auto here = self.lock()) here->called(here->far_, std::move(each));
        },
        [](std::error_code) {});
  }
  /// A call has come, or one is given up.
  void called(const std::shared_ptr<link>& from, message&& each) {
    if (each.kind == message_kind::cancel) return server_->cancel(from, each.id);
    server_->called(from, std::move(each));
  }

  [[nodiscard]] call_server& server() const noexcept { return *server_; }
  /// Where this process sends what it calls in itself, and where that arrives.
  [[nodiscard]] const std::shared_ptr<local_link>& near() const noexcept { return near_; }
  [[nodiscard]] const std::shared_ptr<local_link>& far() const noexcept { return far_; }

  std::uint64_t ordered = 0;                       ///< ordered calls so far
  std::map<std::uint64_t, communicator_use> used;  ///< by those that have ended
  std::uint64_t begun = 0;                         ///< the last one

 private:
  void answered(message&& each) {
    if (each.kind == message_kind::used) {
      wire::reader in(each.bytes);
      used[each.id] = in.get<communicator_use>();
    } else {
      static_cast<void>(calls_->answered(0, std::move(each)));
      changed_.notify();
    }
  }

  std::shared_ptr<call_client> calls_;
  event changed_;
  std::shared_ptr<call_server> server_;
  std::shared_ptr<local_link> near_;
  std::shared_ptr<local_link> far_;
};
using own_calls = basic_own_calls<void>;

}  // namespace cohort::cluster
