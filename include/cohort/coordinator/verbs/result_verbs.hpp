// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The named verbs with a result of another size than their input: in a vector, or in memory
/// of the caller.

#include <cohort/coordinator/verbs/verbs.hpp>

#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::coordination {

/// Where what comes of `In` goes, and what the handler gets.
template <class In, class Out>
struct place_of {
  using type = named_room<In, Out>;
  using kept = kept_by<named_argument<In>, named_argument<Out>>;
  using signature = typename named_signature<kept, std::size_t>::type;
  using counted = typename named_signature<kept, std::vector<std::size_t>>::type;
};
template <class In>
struct place_of<In, void> {
  using type = named_result<In>;
  using signature = void(std::exception_ptr, typename type::type);
  using counted = void(std::exception_ptr, typename type::type, std::vector<std::size_t>);
};

/// A verb that reads a buffer, and gives back what comes of it: in a vector, or device memory
/// beside the buffer. An owned one is not handed back then: the result is what the caller wants.
/// With an `Out` it comes into memory of the caller, and the result is how many elements these are.
template <class In, class Out = void>
struct making_body : submitting_body {
  static constexpr bool makes = std::is_void_v<Out>;
  using value = value_of<In>;
  using signature = typename place_of<In, Out>::signature;

  template <class... To>
  making_body(operation_name name_, const call_options& options_, std::remove_reference_t<In>& in_,
              To&... to)
      : submitting_body(std::move(name_), options_), result(in_, to...), in(in_) {}

  void describe_buffers(task& of, coordination::signature& sig, const instance& where) {
    const auto [from, count] = in.use(of, "in");
    describe_elements<value>(of, sig, count);
    of.first.in = from;
    if constexpr (!makes) result.use(of, where);
  }
  /// Where it is known at once how much comes: without room for it, no rank starts.
  void make_result(task& of, std::size_t count) {
    if constexpr (makes) {
      try {
        of.first.out = result.make(of, count);
      } catch (...) {
        of.fail(std::current_exception());
      }
    } else if (result.fits(of, count, name.view())) {
      of.first.out = result.data();
    }
  }
  /// Where the ranks tell each other.
  static void* result_of(making_body& self, task& of, std::span<const std::int64_t> rows) {
    const auto sum = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    return self.result.make(of, static_cast<std::size_t>(sum));
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    if constexpr (makes) {
      std::forward<Handler>(handler)(std::move(why), result.take());
    } else {
      give_back(std::forward<Handler>(handler), std::move(why),
                std::tuple_cat(std::tuple(result.count()), in.take(), result.take()));
    }
  }

  typename place_of<In, Out>::type result;  // before the input, which may be moved from
  named_argument<In> in;
};

template <class In, class Out = void>
struct all_gather_body : making_body<In, Out> {
  using making_body<In, Out>::making_body;
  using value = value_of<In>;

  void describe(task& of, coordination::signature& sig, const instance& where) {
    sig.kind = op_kind::all_gather;
    this->describe_buffers(of, sig, where);
    sig.dimensions = shape{};
    of.sizes.assign(1, static_cast<std::int64_t>(of.first.count));
    of.row_bytes = sizeof(value);
    of.context = this;
    of.make_result = [](task& self, std::span<const std::int64_t> rows) -> void* {
      return making_body<In, Out>::result_of(*static_cast<all_gather_body*>(self.context), self,
                                             rows);
    };
  }
};

template <class In, class Out = void>
struct all_to_all_body : making_body<In, Out> {
  using value = value_of<In>;
  using signature = typename place_of<In, Out>::counted;

  template <class Splits, class... To>
  all_to_all_body(operation_name name_, const call_options& options_, const Splits& splits_,
                  std::remove_reference_t<In>& in_, To&... to)
      : making_body<In, Out>(std::move(name_), options_, in_, to...),
        splits(std::ranges::begin(splits_), std::ranges::end(splits_)) {}

  void describe(task& of, coordination::signature& sig, const instance& where) {
    sig.kind = op_kind::all_to_all;
    this->describe_buffers(of, sig, where);
    sig.dimensions = shape{};
    of.row_bytes = sizeof(value);
    of.sizes = splits;
    std::int64_t sum = 0;
    bool negative = false;
    for (const std::int64_t one : splits) {
      sum += one;
      negative = negative || one < 0;
    }
    if (splits.size() != static_cast<std::size_t>(where.size()) || negative ||
        sum != static_cast<std::int64_t>(of.first.count)) {
      of.fail(errc::invalid_argument, "splits=" + std::to_string(splits.size()) + " of " +
                                          std::to_string(where.size()) +
                                          " ranks, sum=" + std::to_string(sum) +
                                          ", elements=" + std::to_string(of.first.count));
    }
    of.context = this;
    of.make_result = [](task& self, std::span<const std::int64_t> rows) -> void* {
      auto& body = *static_cast<all_to_all_body*>(self.context);
      body.received.assign(rows.begin(), rows.end());
      return making_body<In, Out>::result_of(body, self, rows);
    };
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    if constexpr (making_body<In, Out>::makes) {
      std::forward<Handler>(handler)(std::move(why), this->result.take(), std::move(received));
    } else {
      give_back(
          std::forward<Handler>(handler), std::move(why),
          std::tuple_cat(std::tuple(std::move(received)), this->in.take(), this->result.take()));
    }
  }

  std::vector<std::int64_t> splits;
  std::vector<std::size_t> received;
};

template <class Op, class In, class Out = void>
struct reduce_scatter_body : making_body<In, Out> {
  using making_body<In, Out>::making_body;
  using value = value_of<In>;

  void describe(task& of, coordination::signature& sig, const instance& where) {
    sig.kind = of.kind = op_kind::reduce_scatter;
    this->describe_buffers(of, sig, where);
    describe_reduction<Op, value>(of, sig, where);
    const auto rows = static_cast<std::int64_t>(of.first.count);
    sig.dimensions = shape{rows};
    for (int rank = 0; rank < where.size(); ++rank) {
      of.sizes.push_back(static_cast<std::int64_t>(part_of(of.first.count, rank, where.size())));
    }
    this->make_result(of,
                      static_cast<std::size_t>(of.sizes[static_cast<std::size_t>(where.rank())]));
  }
};

template <class In, class Out = void>
struct gather_body : making_body<In, Out> {
  using value = value_of<In>;

  template <class... To>
  gather_body(operation_name name_, const call_options& options_, int root_,
              std::remove_reference_t<In>& in_, To&... to)
      : making_body<In, Out>(std::move(name_), options_, in_, to...), root(root_) {}
  void describe(task& of, coordination::signature& sig, const instance& where) {
    sig.kind = of.kind = op_kind::gather;
    this->describe_buffers(of, sig, where);
    sig.dimensions = shape{static_cast<std::int64_t>(of.first.count)};
    require_root(of, sig, root, where);
    if (where.rank() != root) return;
    this->make_result(of, of.first.count * static_cast<std::size_t>(where.size()));
  }
  int root;
};

/// The verbs; `Set` is what derives from it.
template <class Set>
class result_verbs {
 public:
  /// All ranks' elements in rank order, as a vector. The number of elements may differ per rank and
  /// from time to time; what has not changed on any rank is not told again.
  template <class In, class First = call_options, class Second = not_given>
    requires named_input<In> && call_tail<First, Second>
  auto all_gather(operation_name name, In&& in, First&& first = First(),
                  Second&& second = Second()) const {
    return initiate(where(), all_gather_body<In>(std::move(name), options_in(first), in),
                    token_in(first, second));
  }
  /// The same into `out`, where they are written without another copy; it may have more room than
  /// is needed, and does not overlap `in`. *Result*: how many elements have come, then what was
  /// passed as an rvalue. *Errors*: errc::size_mismatch, with both sizes, on a rank whose `out` has
  /// no room. How much comes is known when the operation runs, so the other ranks get their
  /// results, and this one receives into memory that goes. Forms with and without `out` are one
  /// operation: each rank chooses for itself.
  /// *Example:* `const std::size_t count = co_await coord.all_gather("rows", mine, all);`
  template <class In, class Out, class First = call_options, class Second = not_given>
    requires beside<In, Out> && call_tail<First, Second>
  auto all_gather(operation_name name, In&& in, Out&& out, First&& first = First(),
                  Second&& second = Second()) const {
    return initiate(where(), all_gather_body<In, Out>(std::move(name), options_in(first), in, out),
                    token_in(first, second));
  }

  /// Sends the first `splits[0]` elements to rank 0, the next `splits[1]` to rank 1, and so on.
  /// Results: what came, in rank order, and how many elements from each rank.
  template <class In, class Splits, class First = call_options, class Second = not_given>
    requires named_input<In> && std::ranges::input_range<const Splits&> && call_tail<First, Second>
  auto all_to_all(operation_name name, In&& in, const Splits& splits, First&& first = First(),
                  Second&& second = Second()) const {
    return initiate(where(), all_to_all_body<In>(std::move(name), options_in(first), splits, in),
                    token_in(first, second));
  }
  /// The same into `out`, as with all_gather. *Result*: how many elements have come from each rank.
  template <class In, class Splits, class Out, class First = call_options, class Second = not_given>
    requires beside<In, Out> && std::ranges::input_range<const Splits&> && call_tail<First, Second>
  auto all_to_all(operation_name name, In&& in, const Splits& splits, Out&& out,
                  First&& first = First(), Second&& second = Second()) const {
    return initiate(where(),
                    all_to_all_body<In, Out>(std::move(name), options_in(first), splits, in, out),
                    token_in(first, second));
  }

  /// Reduces a buffer of every rank and gives each rank its part, as a vector: of n elements on r
  /// ranks, n / r, and the first n % r ranks one more.
  template <class In, class Op, class First = call_options, class Second = not_given>
    requires reducible_input<In, Op> && call_tail<First, Second>
  auto reduce_scatter(operation_name name, In&& in, const Op&, First&& first = First(),
                      Second&& second = Second()) const {
    return initiate(where(), reduce_scatter_body<Op, In>(std::move(name), options_in(first), in),
                    token_in(first, second));
  }
  /// The same into `out`, which may have more room than is needed, and does not overlap `in`; what
  /// is scaled or compressed is copied on its way. *Result*: how many elements this rank's part
  /// has, then what was passed as an rvalue. *Errors*: errc::size_mismatch, with both sizes, where
  /// there is no room; that is known at the call, so no rank starts: the others get
  /// withdrawn_error.
  template <class In, class Out, class Op, class First = call_options, class Second = not_given>
    requires beside<In, Out> && reducible_input<In, Op> && call_tail<First, Second>
  auto reduce_scatter(operation_name name, In&& in, Out&& out, const Op&, First&& first = First(),
                      Second&& second = Second()) const {
    return initiate(where(),
                    reduce_scatter_body<Op, In, Out>(std::move(name), options_in(first), in, out),
                    token_in(first, second));
  }

  /// The blocks of all ranks, of equal size, as a vector on `root`; empty elsewhere.
  template <class In, class First = call_options, class Second = not_given>
    requires named_input<In> && call_tail<First, Second>
  auto gather(operation_name name, In&& in, int root, First&& first = First(),
              Second&& second = Second()) const {
    return initiate(where(), gather_body<In>(std::move(name), options_in(first), root, in),
                    token_in(first, second));
  }
  /// The same into `out`, as with reduce_scatter; it only counts on the root and may be empty
  /// elsewhere. *Result*: how many elements have come, 0 but on the root.
  template <class In, class Out, class First = call_options, class Second = not_given>
    requires beside<In, Out> && call_tail<First, Second>
  auto gather(operation_name name, In&& in, Out&& out, int root, First&& first = First(),
              Second&& second = Second()) const {
    return initiate(where(),
                    gather_body<In, Out>(std::move(name), options_in(first), root, in, out),
                    token_in(first, second));
  }

 protected:
  result_verbs() noexcept {}

 private:
  [[nodiscard]] const std::shared_ptr<instance_handle>& where() const noexcept {
    return static_cast<const Set&>(*this).where_;
  }
};

}  // namespace cohort::coordination
