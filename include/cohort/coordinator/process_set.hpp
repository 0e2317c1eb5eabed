// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Named operations among some ranks.
///
/// \code
/// cohort::coordinator coord(world);
/// auto evens = co_await coord.add_process_set(cohort::ranks::stride(0, world.size(), 2));
/// if (evens) {  // empty on the other ranks, at once
///   std::vector<int> highest(1, evens.rank());
///   co_await evens.all_reduce("highest", highest, cohort::op::max);
///   co_await evens.shutdown();
/// }
/// co_await coord.shutdown();
/// \endcode

#include <cohort/coordinator/persistent_group.hpp>
#include <cohort/coordinator/verbs/bundle_blocks.hpp>
#include <cohort/coordinator/verbs/bundle_verbs.hpp>
#include <cohort/coordinator/verbs/explained_verbs.hpp>
#include <cohort/coordinator/verbs/result_verbs.hpp>
#include <cohort/coordinator/verbs/set_verbs.hpp>
#include <cohort/coordinator/verbs/verbs.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <source_location>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {
namespace coordination {

/// Ranks that submit named operations, in any order each, and see them complete with the same
/// outcome. A handle: copies are the same set. With the last handle the rank leaves.
///
/// *Names.* The n-th submission of a name on one rank belongs to the n-th on every other. Verbs
/// without a name are matched in the order of submission.
///
/// *Collective over* the set: an operation starts when every rank has submitted it, or has joined.
/// *Requires* the same kind, element type, shape, reduction, root, scale, compression and priority
/// everywhere (shapes may differ where a verb says so); otherwise every rank gets mismatch_error,
/// which names the fields, the ranks on each side and where they submitted it. Buffers are
/// contiguous; borrowed ones must live until completion, containers passed as rvalues are handed
/// back.
///
/// *Completion* `void(std::exception_ptr, results…)`, exactly once, with the same outcome on all
/// ranks but for what is this rank's own reason: mismatch_error, withdrawn_error, deadline_error,
/// joined_error, peer_lost_error, data_error; errc::not_accepting after `join` or `shutdown`.
/// *Cancellation*, any type: until the ranks have agreed to start it, the operation is withdrawn
/// everywhere; the await ends with that decision. After that it completes.
/// *Threads.* Any; under the lock of the engine's source. *Cost*: two small messages per rank and
/// batch of submissions, and the operation itself; nothing is allocated in the steady state.
/// *Source*: docs/design/coordinator.md.
class named_verbs : public message_verbs<named_verbs>, public result_verbs<named_verbs> {
 public:
  [[nodiscard]] int rank() const noexcept { return (**where_).rank(); }
  [[nodiscard]] int size() const noexcept { return (**where_).size(); }
  /// The ranks of the set in the coordinator's numbers, in the order of the set.
  [[nodiscard]] const ranks& members() const noexcept { return (**where_).members(); }
  /// Whether a rank of the coordinator is in the set.
  [[nodiscard]] bool contains(int rank) const noexcept { return members().contains(rank); }
  /// Of the ranks of the set that share this rank's node: which of them it is, and how many they
  /// are; and whether all nodes have as many. As in a communicator.
  [[nodiscard]] int local_rank() const noexcept { return (**where_).local_rank(); }
  [[nodiscard]] int local_size() const noexcept { return (**where_).local_size(); }
  [[nodiscard]] bool is_homogeneous() const noexcept { return (**where_).is_homogeneous(); }
  [[nodiscard]] explicit operator bool() const noexcept { return where_ != nullptr; }
  [[nodiscard]] asio::io_context::executor_type get_executor() const noexcept {
    return (**where_).engine().get_executor();
  }
  /// With the numbers that are in force now, if they are tuned.
  [[nodiscard]] coordinator_options options() const { return (**where_).present_options(); }
  [[nodiscard]] coordinator_statistics stats() const { return (**where_).statistics(); }
  /// What this rank has submitted and what is not complete. Who is ready and who is missing is as
  /// of the last stall report; `ask_pending()` asks for one.
  [[nodiscard]] std::vector<pending_operation> pending() const { return (**where_).pending(); }
  void ask_pending() const { (**where_).request_report(); }

  /// Reduces a buffer of every rank, in place. Also the average of integers, which truncates toward
  /// zero, and op::adasum, for which each tensor is a vector, also in a pack; on a device it fails
  /// with errc::not_supported.
  /// *Example:* `co_await coord.all_reduce("layer1/w", w, cohort::op::average);`
  template <class B, class Op, class First = call_options, class Second = not_given>
    requires all_reducible<B, Op> && call_tail<First, Second>
  auto all_reduce(operation_name name, B&& buffer, const Op&, First&& first = First(),
                  Second&& second = Second()) const {
    return initiate(
        where_,
        in_place_body<op_kind::all_reduce, Op, B>(std::move(name), options_in(first), buffer),
        token_in(first, second));
  }
  /// Out of place: `out` has as many elements as `in`.
  template <class In, class Out, class Op, class First = call_options, class Second = not_given>
    requires beside<In, Out> && all_reducible_input<In, Op> && call_tail<First, Second>
  auto all_reduce(operation_name name, In&& in, Out&& out, const Op&, First&& first = First(),
                  Second&& second = Second()) const {
    return initiate(where_,
                    all_reduce_to_body<Op, In, Out>(std::move(name), options_in(first), in, out),
                    token_in(first, second));
  }
  /// Without a name.
  template <class B, class Op, class Token = default_token>
    requires(!std::convertible_to<B, operation_name>) && all_reducible<B, Op>
  auto all_reduce(B&& buffer, const Op& op, Token&& token = Token(),
                  std::source_location where = std::source_location::current()) const {
    return all_reduce(operation_name(where), std::forward<B>(buffer), op, call_options(), token);
  }

  /// Reduces to `root`, where the buffer holds the result; elsewhere it is left as it is.
  template <class B, class Op, class First = call_options, class Second = not_given>
    requires reducible<B, Op> && call_tail<First, Second>
  auto reduce(operation_name name, B&& buffer, const Op&, int root, First&& first = First(),
              Second&& second = Second()) const {
    return initiate(
        where_,
        in_place_body<op_kind::reduce, Op, B>(std::move(name), options_in(first), buffer, root),
        token_in(first, second));
  }

  /// Copies the root's buffer to every rank.
  template <class B, class First = call_options, class Second = not_given>
    requires named_output<B> && call_tail<First, Second>
  auto broadcast(operation_name name, B&& buffer, int root, First&& first = First(),
                 Second&& second = Second()) const {
    return initiate(where_,
                    in_place_body<op_kind::broadcast, void, B>(std::move(name), options_in(first),
                                                               buffer, root),
                    token_in(first, second));
  }

  /// Gives each rank its block of the root's `in`, which only counts there and has
  /// `size() × out.size()` elements.
  template <class In, class Out, class First = call_options, class Second = not_given>
    requires beside<In, Out> && call_tail<First, Second>
  auto scatter(operation_name name, In&& in, Out&& out, int root, First&& first = First(),
               Second&& second = Second()) const {
    return initiate(where_,
                    scatter_body<In, Out>(std::move(name), options_in(first), in, out, root),
                    token_in(first, second));
  }

  /// Completes when every rank has come to it.
  template <class Token = default_token>
    requires(!std::convertible_to<Token, operation_name>)
  auto barrier(Token&& token = Token(),
               std::source_location where = std::source_location::current()) const {
    return initiate(where_, barrier_body(operation_name(where)), token);
  }
  template <class Token = default_token>
  auto barrier(operation_name name, Token&& token = Token()) const {
    return initiate(where_, barrier_body(std::move(name)), token);
  }

  /// The tensors of a bundle as one operation: all of them or none.
  template <class Op, class First = call_options, class Second = not_given>
    requires bundle_reduction<Op> && call_tail<First, Second>
  auto grouped_all_reduce(bundle members, const Op&, First&& first = First(),
                          Second&& second = Second(),
                          std::source_location where = std::source_location::current()) const {
    return initiate(where_,
                    bundle_body<op_kind::all_reduce>(std::move(members), options_in(first),
                                                     code_of<Op>(), -1, where),
                    token_in(first, second));
  }
  /// Reduces them to `root`; elsewhere they are left as they are.
  template <class Op, class First = call_options, class Second = not_given>
    requires bundle_reduction<Op> && (!is_adasum<Op>) && call_tail<First, Second>
  auto grouped_reduce(bundle members, const Op&, int root, First&& first = First(),
                      Second&& second = Second(),
                      std::source_location where = std::source_location::current()) const {
    return initiate(where_,
                    bundle_body<op_kind::reduce>(std::move(members), options_in(first),
                                                 code_of<Op>(), root, where),
                    token_in(first, second));
  }
  template <class Token = default_token>
  auto grouped_broadcast(bundle members, int root, Token&& token = Token(),
                         std::source_location where = std::source_location::current()) const {
    return initiate(where_,
                    bundle_body<op_kind::broadcast>(std::move(members), call_options(),
                                                    reduction_code::no_reduction, root, where),
                    token);
  }

  /// All ranks' elements of each member, as one operation; their numbers may differ per rank. The
  /// buffers are copied at once, and what comes is asked of the result by name:
  /// `(co_await coord.grouped_all_gather(bundle("it").add("a", a))).get<float>("a")`.
  template <class Token = default_token>
  auto grouped_all_gather(const bundle& members, Token&& token = Token(),
                          std::source_location where = std::source_location::current()) const {
    return initiate(where_, bundle_gather_body(members, call_options(), where), token);
  }

  /// The blocks of all ranks on `root`, by name; each member has as many elements on every rank.
  /// Empty elsewhere. The buffers are copied when it starts.
  template <class Token = default_token>
  auto grouped_gather(bundle members, int root, Token&& token = Token(),
                      std::source_location where = std::source_location::current()) const {
    return initiate(
        where_, bundle_block_body<op_kind::gather>(std::move(members), call_options(), root, where),
        token);
  }
  /// Gives each rank its block of each member of the root's `from`, which only counts there, in the
  /// members of `to`: the same names in the same order, `size()` times as many elements in `from`.
  template <class Token = default_token>
  auto grouped_scatter(bundle from, bundle to, int root, Token&& token = Token(),
                       std::source_location where = std::source_location::current()) const {
    return initiate(
        where_, bundle_scatter_body(std::move(from), std::move(to), call_options(), root, where),
        token);
  }
  /// Each member is cut into one block for each rank; what came of each, in rank order, by name.
  /// The buffers are copied when it starts.
  template <class Token = default_token>
  auto grouped_all_to_all(bundle members, Token&& token = Token(),
                          std::source_location where = std::source_location::current()) const {
    return initiate(
        where_,
        bundle_block_body<op_kind::all_to_all>(std::move(members), call_options(), -1, where),
        token);
  }
  /// Reduces each member and gives each rank its part of each, by name: of n elements on r ranks,
  /// n / r, and the first n % r ranks one more.
  template <class Op, class First = call_options, class Second = not_given>
    requires bundle_reduction<Op> && (!is_adasum<Op>) && call_tail<First, Second>
  auto grouped_reduce_scatter(bundle members, const Op&, First&& first = First(),
                              Second&& second = Second(),
                              std::source_location where = std::source_location::current()) const {
    return initiate(
        where_,
        bundle_reduce_scatter_body(std::move(members), options_in(first), code_of<Op>(), where),
        token_in(first, second));
  }

  /// A group of tensors that can be started again and again, see `persistent_group`: without
  /// negotiation, but for groups on devices and in sets on devices, whose starts are elected.
  /// *Cost*: one negotiated operation; where starts are not elected, also a communicator, made as
  /// by `communicator::dup`.
  template <class Op, class First = call_options, class Second = not_given>
    requires bundle_reduction<Op> && call_tail<First, Second>
  auto make_persistent(bundle members, const Op&, First&& first = First(),
                       Second&& second = Second(),
                       std::source_location where = std::source_location::current()) const {
    add_group_body<persistent_group> body(std::move(members), options_in(first), code_of<Op>(), -1,
                                          where);
    body.where = where_;
    return initiate(where_, std::move(body), token_in(first, second));
  }

  /// The root's object on every rank: any type of `core/wire.hpp`. Elsewhere `object` only names
  /// the type. Throws what encoding throws.
  template <wire::value T, class Token = default_token>
  auto broadcast_object(operation_name name, const T& object, int root,
                        Token&& token = Token()) const {
    std::vector<std::byte> bytes;
    if (where_ && rank() == root) bytes = wire::encode(object);
    return initiate(where_,
                    object_body<T, false>(std::move(name), call_options(), std::move(bytes), root),
                    token);
  }
  /// Every rank's object, in rank order; ranks that have joined bring none.
  template <wire::value T, class Token = default_token>
  auto all_gather_object(operation_name name, const T& object, Token&& token = Token()) const {
    return initiate(where_,
                    object_body<T, true>(std::move(name), call_options(), wire::encode(object), 0),
                    token);
  }

  /// This rank has no more data: it brings neutral elements to what the others submit, until all
  /// have joined. *Result*: the rank with the newest state, the same everywhere. Until then this
  /// rank's submissions fail with errc::not_accepting; what it has submitted before completes.
  /// *Cancellation* ends the await; the rank stays joined.
  template <class Token = default_token>
  auto join(Token&& token = Token()) const {
    return initiate(where_, join_body(), token);
  }

  /// Ends the set: what is pending in it fails with peer_lost_error on every rank. Collective over
  /// the set, like shutdown, which lets what is pending complete.
  template <class Token = default_token>
  auto remove(Token&& token = Token()) const {
    return initiate(where_, shutdown_body(protocol::departure::abandoned), token);
  }

  /// Leaves at once, because something has gone wrong on this rank: what it has submitted, and what
  /// the others submit that needs it, ends with peer_lost_error on all of them, which says why and
  /// where: "needs rank 0, which has left: cannot open weights.bin (train.cpp:41)". They are told
  /// by the loop, the first 960 bytes of `why`. Waits for nothing; `shutdown` or the destructor
  /// follow as ever, and `leave_deadline` counts from here. Process sets with a log of their own
  /// have to be left, too. Nothing happens where this rank has left before.
  ///
  ///     } catch (const std::exception& problem) {
  ///       coord.abandon(problem.what());
  ///     }
  ///     co_await coord.shutdown();
  void abandon(std::string_view why,
               const std::source_location& where = std::source_location::current()) const {
    if (!where_) throw error(errc::invalid_argument, "no coordinator");
    (**where_).leave(protocol::departure::abandoned, reason_for_leaving(why, where));
  }

  /// From now on this rank submits nothing. Completes when what it has submitted is complete and
  /// all ranks have left. *Cancellation* ends the await only; where the other ranks stay longer
  /// than `leave_deadline`, it ends with errc::stalled.
  template <class Token = default_token>
  auto shutdown(Token&& token = Token()) const {
    return initiate(where_, shutdown_body(), token);
  }

 protected:
  friend class message_verbs<named_verbs>;
  friend class result_verbs<named_verbs>;
  named_verbs() noexcept {}
  std::shared_ptr<instance_handle> where_;
};

}  // namespace coordination

/// Ranks with the verbs of coordination::named_verbs; a call that fits none of them is told why.
class process_set : public coordination::explained_verbs<coordination::named_verbs> {
 public:
  process_set() noexcept {}

 protected:
  template <class>
  friend struct coordination::add_set_body;
  explicit process_set(std::shared_ptr<coordination::instance_handle> where) noexcept {
    where_ = std::move(where);
  }
};

}  // namespace cohort
