// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The words of a compile error for named verbs that are called wrongly.

#include <cohort/coordinator/named_operation.hpp>
#include <cohort/coordinator/verbs/named_argument.hpp>
#include <cohort/coordinator/verbs/verbs.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/reduction.hpp>

#include <concepts>
#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace cohort {

class bundle;

namespace coordination {

/// Stands for an argument that was not given.
struct no_argument {};
template <std::size_t Index, class... Arguments>
using argument_at =
    std::tuple_element_t<Index, std::tuple<Arguments&&..., no_argument&&, no_argument&&>>;

template <class Argument>
concept name_argument = std::convertible_to<Argument, operation_name>;
template <class Argument>
concept bundle_argument = std::same_as<std::remove_cvref_t<Argument>, bundle>;
template <class... Arguments>
inline constexpr bool any_integer = (std::integral<std::remove_cvref_t<Arguments>> || ...);
template <class... Arguments>
inline constexpr bool any_reduction = (reduction<Arguments> || ...);

/// What a verb takes besides a name and buffers, or a bundle.
struct takes {
  bool reduction = false;
  bool rank = false;  ///< a root, or the other rank of a message
};

/// A compile error that says what is wrong with the arguments of a verb of one tensor. These
/// functions return what a verb does, for the overloads below; no call of theirs compiles.
template <takes What, class... Arguments>
asio::awaitable<void> explain_named() {
  constexpr bool has_name = name_argument<argument_at<0, Arguments...>>;
  static_assert(has_name || any_reduction<Arguments...>,
                "the name of the operation comes first: a string, the same on all ranks");
  constexpr bool reduces = !What.reduction || any_reduction<Arguments...>;
  static_assert(reduces, "no reduction given; use cohort::op::sum, cohort::op::max, …");
  if constexpr (has_name && reduces) {
    constexpr bool is_buffer = named_input<argument_at<1, Arguments...>>;
    static_assert(is_buffer,
                  "after the name comes a buffer: a contiguous range or scalar lvalue, a span, or "
                  "a container rvalue, which is handed back (a temporary would dangle)");
    constexpr bool has_rank = !What.rank || any_integer<Arguments...>;
    static_assert(!is_buffer || has_rank,
                  "the rank is missing: an integer, the root or the other end, after the buffers "
                  "and the reduction");
    static_assert(!is_buffer || !has_rank || never_fits<Arguments...>,
                  "this call does not fit: a buffer that receives must be writable (not const), "
                  "two buffers need one element type, and the reduction must be defined for it "
                  "(no sum of bool, no bitwise operation on floating point, adasum in all_reduce "
                  "of float, double, f16 and bf16 only); then come the splits of all_to_all, or "
                  "the rank, then call_options, then a completion token");
  } else {
    static_assert(!reduces || !any_reduction<Arguments...> || has_name || never_fits<Arguments...>,
                  "this call does not fit: without a name all_reduce is called with a writable "
                  "buffer, a reduction that is defined for its elements, and a completion token");
  }
  return {};
}

/// The same of a verb of a bundle.
template <takes What, class... Arguments>
asio::awaitable<void> explain_grouped() {
  constexpr bool has_bundle = bundle_argument<argument_at<0, Arguments...>>;
  static_assert(has_bundle,
                "the first argument is a bundle: cohort::bundle(\"name\").add(\"member\", buffer)");
  if constexpr (has_bundle) {
    constexpr bool reduces = !What.reduction || any_reduction<Arguments...>;
    static_assert(reduces, "no reduction given; use cohort::op::sum, cohort::op::max, …");
    constexpr bool has_rank = !What.rank || any_integer<Arguments...>;
    static_assert(!reduces || has_rank, "the root is missing: an integer");
    static_assert(!reduces || !has_rank || never_fits<Arguments...>,
                  "this call does not fit: after the bundle come a reduction of cohort::op, not "
                  "one of your own and adasum in all_reduce only, where the verb reduces, the "
                  "root where it has one, call_options where it takes them, then a completion "
                  "token");
  }
  return {};
}

/// Of the verbs that take no data.
template <class... Arguments>
asio::awaitable<void> explain_plain() {
  static_assert(never_fits<Arguments...>,
                "this call does not fit: a name or nothing, then a completion token");
  return {};
}

/// Of objects.
template <class... Arguments>
asio::awaitable<void> explain_object() {
  constexpr bool has_name = name_argument<argument_at<0, Arguments...>>;
  static_assert(has_name, "the name of the operation comes first: a string, the same everywhere");
  static_assert(!has_name || never_fits<Arguments...>,
                "this call does not fit: after the name comes an object of a type that "
                "core/wire.hpp can serialise, the root for broadcast_object, then a token");
  return {};
}

/// The verbs, and for a call that fits none of them an error that says why.
template <class Verbs>
class explained_verbs : public Verbs {
 public:
  // Chosen only where no verb fits: by rank it would win over names, which need a conversion.
  using Verbs::all_reduce;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.all_reduce(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> all_reduce(Arguments&&...) const {
    return explain_named<takes{true, false}, Arguments...>();
  }
  using Verbs::reduce;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.reduce(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> reduce(Arguments&&...) const {
    return explain_named<takes{true, true}, Arguments...>();
  }
  using Verbs::broadcast;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.broadcast(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> broadcast(Arguments&&...) const {
    return explain_named<takes{false, true}, Arguments...>();
  }
  using Verbs::all_gather;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.all_gather(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> all_gather(Arguments&&...) const {
    return explain_named<takes{}, Arguments...>();
  }
  using Verbs::all_to_all;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.all_to_all(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> all_to_all(Arguments&&...) const {
    return explain_named<takes{}, Arguments...>();
  }
  using Verbs::reduce_scatter;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.reduce_scatter(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> reduce_scatter(Arguments&&...) const {
    return explain_named<takes{true, false}, Arguments...>();
  }
  using Verbs::gather;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.gather(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> gather(Arguments&&...) const {
    return explain_named<takes{false, true}, Arguments...>();
  }
  using Verbs::scatter;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.scatter(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> scatter(Arguments&&...) const {
    return explain_named<takes{false, true}, Arguments...>();
  }
  using Verbs::send;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.send(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> send(Arguments&&...) const {
    return explain_named<takes{false, true}, Arguments...>();
  }
  using Verbs::recv;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.recv(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> recv(Arguments&&...) const {
    return explain_named<takes{false, true}, Arguments...>();
  }
  using Verbs::grouped_all_reduce;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.grouped_all_reduce(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> grouped_all_reduce(Arguments&&...) const {
    return explain_grouped<takes{true, false}, Arguments...>();
  }
  using Verbs::grouped_reduce;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.grouped_reduce(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> grouped_reduce(Arguments&&...) const {
    return explain_grouped<takes{true, true}, Arguments...>();
  }
  using Verbs::grouped_broadcast;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.grouped_broadcast(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> grouped_broadcast(Arguments&&...) const {
    return explain_grouped<takes{false, true}, Arguments...>();
  }
  using Verbs::grouped_all_gather;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.grouped_all_gather(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> grouped_all_gather(Arguments&&...) const {
    return explain_grouped<takes{}, Arguments...>();
  }
  using Verbs::grouped_gather;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.grouped_gather(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> grouped_gather(Arguments&&...) const {
    return explain_grouped<takes{false, true}, Arguments...>();
  }
  using Verbs::grouped_scatter;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.grouped_scatter(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> grouped_scatter(Arguments&&...) const {
    return explain_grouped<takes{false, true}, Arguments...>();
  }
  using Verbs::grouped_all_to_all;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.grouped_all_to_all(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> grouped_all_to_all(Arguments&&...) const {
    return explain_grouped<takes{}, Arguments...>();
  }
  using Verbs::grouped_reduce_scatter;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.grouped_reduce_scatter(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> grouped_reduce_scatter(Arguments&&...) const {
    return explain_grouped<takes{true, false}, Arguments...>();
  }
  using Verbs::make_persistent;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.make_persistent(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> make_persistent(Arguments&&...) const {
    return explain_grouped<takes{true, false}, Arguments...>();
  }
  using Verbs::barrier;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.barrier(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> barrier(Arguments&&...) const {
    return explain_plain<Arguments...>();
  }
  using Verbs::broadcast_object;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.broadcast_object(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> broadcast_object(Arguments&&...) const {
    return explain_object<Arguments...>();
  }
  using Verbs::all_gather_object;
  template <class... Arguments>
    requires(!requires(const Verbs& set, Arguments&&... arguments) {
      set.all_gather_object(std::forward<Arguments>(arguments)...);
    })
  asio::awaitable<void> all_gather_object(Arguments&&...) const {
    return explain_object<Arguments...>();
  }
};

}  // namespace coordination
}  // namespace cohort
