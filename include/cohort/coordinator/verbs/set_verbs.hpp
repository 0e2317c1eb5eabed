// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of what a set does beside tensors: barrier, objects, join, its making and end.

#include <cohort/coordinator/verbs/verbs.hpp>
#include <cohort/core/wire.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace cohort::coordination {

struct barrier_body : submitting_body {
  using submitting_body::submitting_body;
  static void describe(task&, coordination::signature& sig, const instance&) {
    sig.kind = op_kind::barrier;
  }
};

/// Objects of any size: their bytes are gathered. A broadcast is a gather to which the root alone
/// brings bytes.
template <class T, bool FromAll>
struct object_body : submitting_body {
  using result_type = std::conditional_t<FromAll, std::vector<T>, T>;
  using signature = void(std::exception_ptr, result_type);

  object_body(operation_name name_, const call_options& options_, std::vector<std::byte> bytes_,
              int root_)
      : submitting_body(std::move(name_), options_), bytes(std::move(bytes_)), root(root_) {}
  void describe(task& of, coordination::signature& sig, const instance& where) {
    sig.kind = op_kind::all_gather;
    sig.detail = FromAll ? 1 : 2;
    describe_element<std::byte>(sig);
    if (!FromAll) {
      require_root(of, sig, root, where);
      if (where.rank() != root) bytes.clear();
    }
    of.first.in = bytes.data();
    of.first.count = bytes.size();
    of.first.kernels = &kernels_of<std::byte>;
    of.sizes.assign(1, static_cast<std::int64_t>(bytes.size()));
    of.row_bytes = 1;
    of.context = this;
    of.make_result = [](task& self, std::span<const std::int64_t> rows) -> void* {
      auto& body = *static_cast<object_body*>(self.context);
      body.sizes.assign(rows.begin(), rows.end());
      body.all.resize(
          static_cast<std::size_t>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0})));
      return body.all.data();
    };
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    result_type result{};
    if (!why) {
      try {
        std::span<const std::byte> left(all);
        if constexpr (FromAll) {
          for (const std::size_t size : sizes) {
            // A rank that has joined brings nothing.
            if (size != 0) result.push_back(wire::decode<T>(left.first(size)));
            left = left.subspan(size);
          }
        } else {
          result = wire::decode<T>(left);
        }
      } catch (...) {
        why = std::current_exception();
      }
    }
    std::forward<Handler>(handler)(std::move(why), std::move(result));
  }

  std::vector<std::byte> bytes;
  std::vector<std::byte> all;
  std::vector<std::size_t> sizes;
  int root;
};

struct join_body {
  using signature = void(std::exception_ptr, int);
  static void start(join_body&, task& of, instance& where) { where.join(of); }
  static void cancel(task& of, instance& where) { where.stop_joining(of); }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t newest) {
    std::forward<Handler>(handler)(std::move(why), static_cast<int>(newest));
  }
};

/// `Set` is process_set, which is declared after this.
template <class Set>
struct add_set_body : plain_body {
  using signature = void(std::exception_ptr, Set);
  explicit add_set_body(ranks members) { record.members = std::move(members); }
  static void start(add_set_body& self, task& of, instance& where) {
    of.context = &self.record;
    where.add_set(of);
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::forward<Handler>(handler)(std::move(why), Set(std::move(record.made)));
  }
  creation record;
};

struct shutdown_body : plain_body {
  explicit shutdown_body(protocol::departure how_ = protocol::departure::drained) : how(how_) {}
  protocol::departure how;
  static void start(shutdown_body& self, task& of, instance& where) {
    where.leave(self.how);
    where.wait_closed(of);
  }
  static void cancel(task& of, instance& where) { where.stop_waiting(of); }
};

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
    of.fail(errc::invalid_argument, "an arena of " + std::to_string(bytes) + " bytes");
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::forward<Handler>(handler)(std::move(why), std::move(made));
  }

  std::size_t bytes;
  std::shared_ptr<comm::device_arena> made;
};

}  // namespace cohort::coordination
