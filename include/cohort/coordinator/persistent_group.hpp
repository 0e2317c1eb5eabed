// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Tensors that are reduced together again and again: started without negotiation.

#include <cohort/coordinator/detail/bundle_verbs.hpp>

#include <memory>
#include <source_location>
#include <utility>

namespace cohort {

namespace coordination {

/// `Group` is persistent_group, which is declared after this.
template <class Group>
struct add_group_body : bundle_body<op_kind::all_reduce> {
  using base = bundle_body<op_kind::all_reduce>;
  using signature = void(std::exception_ptr, Group);
  using base::base;

  static void start(add_group_body& self, task& of, instance& where) {
    protocol::signature sig;
    sig.prescale = self.options.prescale;
    sig.postscale = self.options.postscale;
    self.describe(of, sig, where);
    self.choose_device(of, sig);
    of.wanted = self.options.compression;
    self.state = where.add_group(of, self.name.view(), std::move(sig), self.name.where());
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    Group made(why ? nullptr : std::move(where), std::move(state));
    std::forward<Handler>(handler)(std::move(why), std::move(made));
  }
  std::shared_ptr<group_state> state;
  std::shared_ptr<instance_handle> where;
};

struct group_start_body {
  using signature = void(std::exception_ptr);
  explicit group_start_body(std::shared_ptr<group_state> of) : state(std::move(of)) {}
  static void start(group_start_body& self, task& of, instance& where) {
    where.start_group(of, *self.state);
  }
  static void cancel(task&, instance&) {}
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::forward<Handler>(handler)(std::move(why));
  }
  std::shared_ptr<group_state> state;
};

struct group_remove_body {
  using signature = void(std::exception_ptr);
  group_remove_body(std::shared_ptr<group_state> of, std::source_location site_)
      : state(std::move(of)), site(site_) {}
  static void start(group_remove_body& self, task& of, instance& where) {
    where.remove_group(of, *self.state, self.site);
  }
  static void cancel(task& of, instance& where) {
    where.withdraw(of, progress::emitting_deadline() ? protocol::withdrawal_reason::deadline
                                                     : protocol::withdrawal_reason::cancelled);
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::forward<Handler>(handler)(std::move(why));
  }
  std::shared_ptr<group_state> state;
  std::source_location site;
};

}  // namespace coordination

/// The tensors of a bundle, which are all_reduced in place each time the group is started. Ranks
/// agree once, when it is made; after that the n-th start on one rank belongs to the n-th on every
/// other, in any order beside other operations, and no message is needed but the reduction itself.
/// A handle. The buffers must live until the group is removed or its coordinator has ended.
///
/// On device memory each start is elected like a named operation, since devices launch in one order
/// on all ranks. The options `on` and `ends` of the group are those of every start.
///
/// While there is a group, `join()` fails with errc::not_accepting; once a rank has left, so do
/// starts, and those that some rank lacks end with peer_lost_error on all.
class persistent_group {
 public:
  persistent_group() noexcept {}
  [[nodiscard]] explicit operator bool() const noexcept { return where_ != nullptr; }

  /// Reduces the tensors. `void(std::exception_ptr)`. *Cancellation*: none, it has started.
  /// *Cost*: a direct all_reduce on a communicator of its own, and packing where there are several
  /// small tensors.
  template <class Token = default_token>
  auto start(Token&& token = Token()) const {
    return coordination::initiate(where_, coordination::group_start_body(state_), token);
  }
  /// Ends the group. Collective. Fails with mismatch_error where ranks have started it unequally
  /// often, and the group stays.
  template <class Token = default_token>
  auto remove(Token&& token = Token(),
              std::source_location where = std::source_location::current()) const {
    return coordination::initiate(where_, coordination::group_remove_body(state_, where), token);
  }

 private:
  template <class>
  friend struct coordination::add_group_body;
  persistent_group(std::shared_ptr<coordination::instance_handle> where,
                   std::shared_ptr<coordination::group_state> state) noexcept
      : where_(std::move(where)), state_(std::move(state)) {}
  std::shared_ptr<coordination::instance_handle> where_;
  std::shared_ptr<coordination::group_state> state_;
};

}  // namespace cohort
