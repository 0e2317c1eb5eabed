// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What a set does beside collectives: named messages from one of its ranks to another,
/// barrier, objects, join, arenas, its making and its end.

#include <cohort/coordinator/verbs/verbs.hpp>
#include <cohort/core/wire.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// One end of a message. Its pair of ranks is part of the name under which it is submitted.
template <class B, bool Sends>
struct message_body : submitting_body {
  using value = value_of<B>;
  using argument = named_argument<B>;
  using signature = typename named_signature<kept_by<argument>>::type;

  message_body(operation_name name_, const call_options& options_, std::remove_reference_t<B>& b,
               int peer_)
      : submitting_body(std::move(name_), options_), buffer(b), peer(peer_) {}

  void describe(task& of, coordination::signature& sig, const instance& where) {
    const auto [data, count] = buffer.use(of, "buffer");
    if constexpr (Sends) {
      of.first.in = data;
    } else {
      of.first.out = data;
    }
    describe_elements<value>(of, sig, count);
    of.peer = peer;
    of.sends = Sends;
    sig.kind = op_kind::message;
    sig.dimensions = shape{static_cast<std::int64_t>(count)};
    sig.root = Sends ? where.rank() : peer;
    sig.detail = static_cast<std::uint64_t>(Sends ? peer : where.rank());
    // The other rank hears of a mistake, not of a difference.
    const bool scales = std::exchange(sig.prescale, 1) != 1 || std::exchange(sig.postscale, 1) != 1;
    const bool compresses =
        std::exchange(options.compression, compression::none) != compression::none;
    if (!scales && !compresses) return;
    const std::string verb = Sends ? "send" : "recv";
    of.fail(errc::invalid_argument,
            "rank " + std::to_string(where.rank()) + ": " + verb + " '" + std::string(name.view()) +
                "': " + (scales ? "scale factors are" : "compression is") + " for reductions");
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    give_back(std::forward<Handler>(handler), std::move(why), buffer.take());
  }

  argument buffer;
  int peer;
};

/// The verbs of a set for two of its ranks; `Set` is what derives from it.
///
/// The n-th `send` of a name from one rank to another belongs to the n-th `recv` of that name from
/// it: the name may be used towards other ranks, and the other way, at the same time. *Collective
/// over* these two ranks alone; it is elected like any operation, so a rank may submit it at any
/// time and in any order, rings of messages cannot deadlock, and on a device it has its place among
/// the launches. It is never packed with others, and its name is not cached.
///
/// *Requires* the same element type, number of elements, memory (both on the host or both on a
/// device) and priority at both ends; otherwise both get mismatch_error. No compression, no scale
/// factors, and not to oneself: errc::invalid_argument. No such rank: errc::bad_rank. Where it has
/// joined or left, joined_error or peer_lost_error. For all else see process_set. *Cost*: the
/// control messages of an operation with the name and the signature in them, and one message of MPI
/// or of the backend for devices.
template <class Set>
class message_verbs {
 public:
  /// Sends a buffer to rank `to_rank` of the set, which receives it under the same name. What is
  /// passed as an rvalue is handed back.
  /// *Example:* `co_await coord.send("activations", buffer, to_rank);`
  template <class B, class First = call_options, class Second = not_given>
    requires named_input<B> && call_tail<First, Second>
  auto send(operation_name name, B&& buffer, int to_rank, First&& first = First(),
            Second&& second = Second()) const {
    return initiate(where(),
                    message_body<B, true>(std::move(name), options_in(first), buffer, to_rank),
                    token_in(first, second));
  }

  /// Fills a buffer with what rank `from_rank` of the set sends under the same name.
  template <class B, class First = call_options, class Second = not_given>
    requires named_output<B> && call_tail<First, Second>
  auto recv(operation_name name, B&& buffer, int from_rank, First&& first = First(),
            Second&& second = Second()) const {
    return initiate(where(),
                    message_body<B, false>(std::move(name), options_in(first), buffer, from_rank),
                    token_in(first, second));
  }

 protected:
  message_verbs() noexcept {}

 private:
  [[nodiscard]] const std::shared_ptr<instance_handle>& where() const noexcept {
    return static_cast<const Set&>(*this).where_;
  }
};

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
    if (!FromAll) {
      require_root(of, sig, root, where);
      if (where.rank() != root) bytes.clear();
    }
    describe_elements<std::byte>(of, sig, bytes.size());
    of.first.in = bytes.data();
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
  explicit add_set_body(const communicator& like) { record.like = like; }
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
