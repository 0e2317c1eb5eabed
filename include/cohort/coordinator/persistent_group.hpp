// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Tensors that are reduced together again and again: agreed upon once, then started without
/// negotiation.
///
/// \code
/// cohort::coordinator coord(world);
/// std::vector<float> w(1000), b(20);
/// auto model = co_await coord.make_persistent(cohort::bundle("model").add("w", w).add("b", b),
///                                             cohort::op::average);
/// for (int step = 0; step < 10; ++step) {
///   w.assign(w.size(), static_cast<float>(step));  // the gradients of this step
///   co_await model.start();                        // in place, in the same buffers each time
/// }
/// co_await model.remove();
/// co_await coord.shutdown();
/// \endcode

#include <cohort/coordinator/verbs/bundle_verbs.hpp>

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <type_traits>
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

/// What has started stays; where starts are elected, one may be withdrawn until it is.
struct group_start_body : plain_body {
  explicit group_start_body(std::shared_ptr<group_state> of) : state(std::move(of)) {}
  static void start(group_start_body& self, task& of, instance& where) {
    where.start_group(of, *self.state);
  }
  std::shared_ptr<group_state> state;
};

/// What was captured of a persistent group: the context of a start that captures or replays it.
struct captured_state {
  std::weak_ptr<const group_state> group;
  std::uint64_t start = 0;  ///< the start of the group that captured it: the same on all ranks
  std::shared_ptr<comm::device_graph> graph;
};

/// `Captured` is captured_group, which is declared after this.
template <class Captured>
struct group_capture_body : group_start_body {
  using signature = void(std::exception_ptr, Captured);
  using group_start_body::group_start_body;

  static void start(group_capture_body& self, task& of, instance& where) {
    of.use_device().use = comm::device_use::capture;
    of.context = self.made.get();
    where.start_group(of, *self.state);
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    Captured captured(why ? nullptr : std::move(made));
    std::forward<Handler>(handler)(std::move(why), std::move(captured));
  }
  std::shared_ptr<captured_state> made = std::make_shared<captured_state>();
};

struct group_replay_body : group_start_body {
  group_replay_body(std::shared_ptr<group_state> of, std::shared_ptr<captured_state> what,
                    stream_ref on_, until ends_)
      : group_start_body(std::move(of)),
        captured(std::move(what)),
        on(std::move(on_)),
        ends(ends_) {}

  /// What was captured is let go of here; its graph stays with the task, until that has ended.
  static void start(group_replay_body& self, task& of, instance& where) {
    const auto its = std::move(self.captured);
    device_part& part = of.use_device();
    part.use = comm::device_use::replay;
    part.on = std::move(self.on);
    part.ends = self.ends;
    of.context = its.get();
    where.start_group(of, *self.state);
  }
  std::shared_ptr<captured_state> captured;
  stream_ref on;
  until ends;
};

/// What replay() takes: a capture, and options or not.
template <class Capture, class Options, class... Arguments>
inline constexpr bool replays = false;
template <class Capture, class Options, class First, class... Rest>
inline constexpr bool replays<Capture, Options, First, Rest...> =
    std::same_as<std::remove_cvref_t<First>, Capture> && sizeof...(Rest) < 3;

struct group_remove_body : group_start_body {
  group_remove_body(std::shared_ptr<group_state> of, std::source_location site_)
      : group_start_body(std::move(of)), site(site_) {}
  static void start(group_remove_body& self, task& of, instance& where) {
    where.remove_group(of, *self.state, self.site);
  }
  std::source_location site;
};

}  // namespace coordination

/// What persistent_group::capture() has captured. A handle; what is on the device ends with the
/// last one, or with its coordinator, which names in the log what is still held then. Later replays
/// fail.
class captured_group {
 public:
  captured_group() noexcept {}
  [[nodiscard]] explicit operator bool() const noexcept { return what_ != nullptr; }

 private:
  friend class persistent_group;
  template <class>
  friend struct coordination::group_capture_body;
  explicit captured_group(std::shared_ptr<coordination::captured_state> what) noexcept
      : what_(std::move(what)) {}
  std::shared_ptr<coordination::captured_state> what_;
};

/// Of persistent_group::replay().
struct replay_options {
  /// The stream that writes the tensors, beside those of the buffers; none: that of the group.
  stream_argument on = {};
  until ends = until::complete;  ///< as in call_options
};

/// The tensors of a bundle, which are all_reduced in place each time the group is started. Ranks
/// agree once, when it is made; after that the n-th start on one rank belongs to the n-th on every
/// other, in any order beside other operations, and no message is needed but the reduction itself.
/// A handle. The buffers must live until the group is removed, or its set or coordinator has ended.
///
/// On device memory, and in process sets of a coordinator for devices, each start is elected like a
/// named operation, since devices launch in one order on all ranks. The options `on` and `ends` of
/// the group are those of every start.
///
/// While there is a group, `join()` of its set or coordinator fails with errc::not_accepting; once
/// a rank has left, so do starts, and those that some rank lacks end with peer_lost_error on all.
class persistent_group {
 public:
  persistent_group() noexcept {}
  [[nodiscard]] explicit operator bool() const noexcept { return where_ != nullptr; }

  /// Reduces the tensors. `void(std::exception_ptr)`. *Cancellation*: none, it has started; where
  /// starts are elected, until then. *Cost*: a direct all_reduce on a communicator of its own, and
  /// packing where there are several small tensors; where starts are elected, that of all_reduce.
  template <completion_token_for<void(std::exception_ptr)> Token = default_token>
  auto start(Token&& token = Token()) const {
    return coordination::initiate(where_, coordination::group_start_body(state_), token);
  }
  /// Captures a start of the group in a graph of the device (CUDA graphs), on a stream of its own:
  /// packing, reductions and unpacking. Nothing is reduced. `void(std::exception_ptr,
  /// captured_group)`. Collective: it takes the place of a start on every rank, where other ranks
  /// start or replay it fails with mismatch_error on all. Fails with errc::not_supported on all
  /// ranks for memory of the host, for what the backend leaves to the host (types and reductions
  /// that NCCL lacks, reductions over nodes), and where its configuration does not allow graphs.
  /// *Cancellation*: until it is elected. *Cost*: an elected operation, one buffer on the device
  /// for the tensors that are packed, and instantiating the graph, in which the loop is blocked.
  template <completion_token_for<void(std::exception_ptr, captured_group)> Token = default_token>
  auto capture(Token&& token = Token()) const {
    return coordination::initiate(where_, coordination::group_capture_body<captured_group>(state_),
                                  token);
  }
  /// A start that is one launch of a graph. `void(std::exception_ptr)`. All ranks must replay what
  /// they have captured in the same start, otherwise mismatch_error on all. Fails with
  /// errc::invalid_argument where `what` was not captured of this group, or where the replay is
  /// enqueued and nothing orders a buffer, and the other ranks hear of it. *Cancellation*: until it
  /// is elected. *Cost*: an elected operation, and one cudaGraphLaunch.
  template <completion_token_for<void(std::exception_ptr)> Token = default_token>
  auto replay(const captured_group& what, const replay_options& options = {},
              Token&& token = Token()) const {
    return coordination::initiate(
        where_, coordination::group_replay_body(state_, what.what_, options.on.get(), options.ends),
        token);
  }
  template <completion_token_for<void(std::exception_ptr)> Token>
    requires(!std::same_as<std::remove_cvref_t<Token>, replay_options>)
  auto replay(const captured_group& what, Token&& token) const {
    return replay(what, replay_options(), std::forward<Token>(token));
  }
  /// Ends the group. Collective. Fails with mismatch_error where ranks have started it unequally
  /// often, and the group stays.
  template <completion_token_for<void(std::exception_ptr)> Token = default_token>
  auto remove(Token&& token = Token(),
              std::source_location where = std::source_location::current()) const {
    return coordination::initiate(where_, coordination::group_remove_body(state_, where), token);
  }

  // Chosen when a call does not fit: they say what is wrong with it. (With an argument at least:
  // between two templates without one clang does not choose.)
  template <class First, class... Rest>
  asio::awaitable<void> start(First&&, Rest&&...) const {
    static_assert(coordination::never_fits<First, Rest...>, "start takes a completion token only");
    return {};
  }
  template <class First, class... Rest>
  asio::awaitable<captured_group> capture(First&&, Rest&&...) const {
    static_assert(coordination::never_fits<First, Rest...>,
                  "capture takes a completion token only");
    return {};
  }
  template <class... Arguments>
    requires(!coordination::replays<captured_group, replay_options, Arguments...>)
  asio::awaitable<void> replay(Arguments&&...) const {
    static_assert(coordination::never_fits<Arguments...>,
                  "replay takes what capture() gave, then replay_options, then a completion token");
    return {};
  }
  template <class First, class... Rest>
  asio::awaitable<void> remove(First&&, Rest&&...) const {
    static_assert(coordination::never_fits<First, Rest...>, "remove takes a completion token only");
    return {};
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
