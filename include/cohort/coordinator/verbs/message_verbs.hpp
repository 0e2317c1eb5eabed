// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Named messages from one rank of a set to another.

#include <cohort/coordinator/verbs/verbs.hpp>

#include <concepts>
#include <cstdint>
#include <exception>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

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
    of.first.count = count;
    of.first.kernels = &kernels_of<value>;
    of.peer = peer;
    of.sends = Sends;
    sig.kind = op_kind::message;
    describe_element<value>(sig);
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

}  // namespace cohort::coordination
