// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// From the arguments of a spawn to a definition: which of them are dependencies, and bytes of the
/// others.

#include <cohort/core/wire.hpp>
#include <cohort/graph/function.hpp>
#include <cohort/graph/runtime/code.hpp>
#include <cohort/graph/runtime/family.hpp>
#include <cohort/graph/runtime/naming.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/value.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::graph {

template <class What>
class taken;
template <class What>
class later;

namespace runtime {

// ---- what an argument is ------------------------------------------------------------------------

template <class A>
concept a_task = std::derived_from<std::remove_cvref_t<A>, task_handle> &&
                 requires { typename std::remove_cvref_t<A>::value_type; };

template <class A>
concept tasks_range = requires(const std::remove_cvref_t<A>& all) {
  { *std::begin(all) } -> a_task;
  std::end(all);
};

/// A range of tasks until the end of the spawn: a temporary is kept, others are referred to.
template <class Range>
class range_of {
 public:
  explicit range_of(Range& all) : all_(static_cast<kept>(all)) {}
  using value_type =
      typename std::remove_cvref_t<decltype(*std::begin(std::declval<Range&>()))>::value_type;
  [[nodiscard]] auto begin() const { return std::begin(all_); }
  [[nodiscard]] auto end() const { return std::end(all_); }

 private:
  using kept = std::conditional_t<std::is_lvalue_reference_v<Range>,
                                  const std::remove_reference_t<Range>&, Range&&>;
  std::conditional_t<std::is_lvalue_reference_v<Range>, const std::remove_reference_t<Range>&,
                     Range>
      all_;
};

template <class A>
struct argument {
  static constexpr bool is_later = false;
  static constexpr bool takes = false;
  using what = A;
};
template <class A>
struct argument<taken<A>> {
  static constexpr bool is_later = false;
  static constexpr bool takes = true;
  using what = A;
};
template <class A>
struct argument<later<A>> {
  static constexpr bool is_later = true;
  static constexpr bool takes = false;
  using what = A;
};

template <class A>
using tasks_of = std::remove_cvref_t<decltype(*std::begin(std::declval<const A&>()))>;

/// Whether a value of type T fills a parameter that is kept as S.
template <class T, class S>
inline constexpr bool fills =
    std::is_same_v<T, S> || (std::is_same_v<S, std::string_view> && std::is_same_v<T, std::string>);
template <class T, class E>
inline constexpr bool fills<std::vector<T>, std::span<const E>> = std::is_same_v<T, E>;

template <class S, class T>
inline constexpr bool takes_all = false;
template <class T>
inline constexpr bool takes_all<std::vector<T>, T> = true;
template <class S, class T>
inline constexpr bool reads_all = false;
template <class T>
inline constexpr bool reads_all<std::span<const T>, T> = true;

/// What a value for a parameter that is kept as S is encoded as.
template <class S>
struct encoded_as {
  using type = S;
};
template <class T>
struct encoded_as<std::span<const T>> {
  using type = std::vector<T>;
};

/// Whether this argument fills that parameter, and a sentence from the compiler if it does not.
template <class Parameter, class A>
consteval bool argument_fits() {
  using stored = std::remove_cvref_t<Parameter>;
  using what = typename argument<A>::what;
  constexpr bool takes = argument<A>::takes;
  if constexpr (a_task<what>) {
    constexpr bool same = fills<typename what::value_type, stored>;
    static_assert(same, "spawn: a task has a value of another type than the parameter it fills");
    return same;
  } else if constexpr (tasks_range<what>) {
    using value = typename tasks_of<what>::value_type;
    constexpr bool same = takes ? takes_all<stored, value> : reads_all<stored, value>;
    static_assert(same,
                  "spawn: a range of tasks with values of type T fills a std::span<const T>, with "
                  "take a std::vector<T>");
    return same;
  } else {
    constexpr bool converts = std::is_convertible_v<A, stored> || std::is_same_v<A, stored>;
    static_assert(converts, "spawn: an argument does not convert to the parameter that it fills");
    constexpr bool has_bytes = has_wire_format<typename encoded_as<stored>::type>() ||
                               std::is_same_v<stored, std::string_view> ||
                               std::is_trivially_copyable_v<stored>;
    static_assert(!converts || has_bytes,
                  "spawn: the type of an argument has no wire format: give it wire_fields");
    return converts && has_bytes;
  }
}

template <class Parameters, std::size_t Index, class... Arguments>
consteval bool arguments_fit() {
  return true;
}
template <class Parameters, std::size_t Index, class First, class... Rest>
consteval bool arguments_fit_from() {
  if constexpr (argument<First>::is_later) {
    if constexpr (sizeof...(Rest) == 0) {
      return true;
    } else {
      return arguments_fit_from<Parameters, Index, Rest...>();
    }
  } else {
    constexpr bool fits = argument_fits<typename Parameters::template at<Index>, First>();
    if constexpr (fits && sizeof...(Rest) != 0) {
      return arguments_fit_from<Parameters, Index + 1, Rest...>();
    } else {
      return fits;
    }
  }
}

/// Whether F can be spawned with these.
template <auto F, class... Arguments>
consteval bool spawn_fits() {
  if constexpr (function<F>::ok) {
    constexpr std::size_t count = (std::size_t{0} + ... + (argument<Arguments>::is_later ? 0 : 1));
    constexpr bool same = count == function<F>::arity;
    static_assert(same, "spawn: there are not as many arguments as the function has parameters");
    if constexpr (same && sizeof...(Arguments) != 0) {
      return arguments_fit_from<typename function<F>::parameters, 0, Arguments...>();
    } else {
      return same;
    }
  } else {
    return false;
  }
}

// ---- the definition -----------------------------------------------------------------------------

/// Gathers the definition of a task in the memory of its scope. That memory is its alone meanwhile:
/// what gives the arguments may spawn other tasks.
class gatherer {
 public:
  gatherer(open_scope& scope, std::uint32_t family)
      : scope_(scope),
        arguments_(std::move(scope.arguments)),
        dependencies_(std::move(scope.dependencies)),
        out_(arguments_) {
    arguments_.clear();
    if (family < scope.beginnings.size()) [[unlikely]]
      arguments_ = scope.beginnings[family];
    dependencies_.clear();
  }
  gatherer(const gatherer&) = delete;
  gatherer& operator=(const gatherer&) = delete;
  ~gatherer() {
    scope_.arguments = std::move(arguments_);
    scope_.dependencies = std::move(dependencies_);
  }

  void depend(const task_handle& on, machine::use_kind use) { depend(on, on.key(), use); }
  /// On all of a range, whose elements may be made as it goes on. So many.
  template <class Range>
  std::uint64_t depend_on_all(const Range& all, machine::use_kind use) {
    using iterator = decltype(std::begin(all));
    constexpr bool stay =
        std::is_lvalue_reference_v<decltype(*std::begin(all))> && std::forward_iterator<iterator>;
    std::uint64_t count = 0;
    for (const auto& each : all) {
      depend(each, stay ? each.key() : kept_.emplace_front(each.key()), use);
      ++count;
    }
    return count;
  }
  template <class Parameter, class A>
  void fill(A&& one) {
    using given = std::remove_cvref_t<A>;
    using what = typename argument<given>::what;
    constexpr auto use =
        argument<given>::takes ? machine::use_kind::take : machine::use_kind::plain;
    if constexpr (a_task<what>) {
      out_.byte(static_cast<std::uint8_t>(filled_by::task));
      depend(unwrapped(one), use);
    } else if constexpr (tasks_range<what>) {
      out_.byte(static_cast<std::uint8_t>(filled_by::tasks));
      out_.varint(depend_on_all(unwrapped(one), use));
    } else {
      out_.byte(static_cast<std::uint8_t>(filled_by::value));
      put<std::remove_cvref_t<Parameter>>(std::forward<A>(one));
    }
  }
  template <class A>
  void run_after(const A& one) {
    if constexpr (std::derived_from<std::remove_cvref_t<decltype(one.what)>, task_handle>) {
      depend(one.what, machine::use_kind::after);
    } else {
      depend_on_all(one.what, machine::use_kind::after);
    }
  }
  [[nodiscard]] machine::definition_view definition(std::uint32_t function,
                                                    std::uint32_t result) const noexcept {
    return {function, result, arguments_, dependencies_, travels_};
  }
  [[nodiscard]] bool is_stale() const noexcept { return stale_; }

 private:
  void depend(const task_handle& on, const machine::task_name& name, machine::use_kind use) {
    stale_ = stale_ || on.window() != scope_.window();
    dependencies_.push_back({&name, use});
  }
  template <class A>
  [[nodiscard]] static const auto& unwrapped(const A& one) noexcept {
    if constexpr (argument<A>::takes) {
      return one.what;
    } else {
      return one;
    }
  }
  template <class S, class A>
  void put(A&& one) {
    if constexpr (std::is_same_v<S, std::string_view>) {
      out_.text(static_cast<std::string_view>(one));
    } else if constexpr (is_span<S>) {
      const S all(one);
      out_.varint(all.size());
      for (const auto& each : all) out_.put(each);
    } else if constexpr (has_wire_format<S>()) {
      if constexpr (std::is_same_v<std::remove_cvref_t<A>, S>) {
        out_.put(std::as_const(one));
      } else {
        out_.put(static_cast<S>(std::forward<A>(one)));
      }
    } else {
      const S copy(std::forward<A>(one));
      out_.raw(std::as_bytes(std::span<const S, 1>(&copy, 1)));
      travels_ = false;
    }
  }

  open_scope& scope_;
  std::vector<std::byte> arguments_;
  std::vector<machine::dependency> dependencies_;
  std::forward_list<machine::task_name> kept_;  // names of temporaries
  wire::writer out_;
  bool stale_ = false;
  bool travels_ = true;
};

template <class Parameters, std::size_t Index>
void gather(gatherer&) noexcept {}
// What a task only runs after comes behind what fills its parameters.
template <class Parameters, std::size_t Index, class First, class... Rest>
void gather(gatherer& all, First&& first, Rest&&... rest) {
  if constexpr (argument<std::remove_cvref_t<First>>::is_later) {
    gather<Parameters, Index>(all, std::forward<Rest>(rest)...);
    all.run_after(first);
  } else {
    all.fill<typename Parameters::template at<Index>>(std::forward<First>(first));
    gather<Parameters, Index + 1>(all, std::forward<Rest>(rest)...);
  }
}

/// Whether each argument fills a parameter with the value of one task: then the bytes are known.
template <class... Arguments>
inline constexpr bool only_tasks =
    (... && (!argument<Arguments>::is_later && a_task<typename argument<Arguments>::what>));

template <std::size_t Count>
inline constexpr std::array<std::byte, Count> filled_by_tasks = [] {
  std::array<std::byte, Count> all{};
  all.fill(static_cast<std::byte>(filled_by::task));
  return all;
}();

template <class A>
[[nodiscard]] machine::dependency dependency_on(const A& one) noexcept {
  if constexpr (argument<A>::takes) {
    return {&one.what.key(), machine::use_kind::take};
  } else {
    return {&one.key(), machine::use_kind::plain};
  }
}
template <class A>
[[nodiscard]] bool is_of(const A& one, std::uint64_t window) noexcept {
  if constexpr (argument<A>::takes) {
    return one.what.window() == window;
  } else {
    return one.window() == window;
  }
}

[[nodiscard]] inline machine::content_ptr refuse_stale(const task_handle& task) {
  return task.scope()->refuse(task.key(), errc::stale_name,
                              "it depends on a task of an earlier window", task.site());
}

/// Spawns it: null, or why not. Requires `spawn_fits`.
template <auto F, class... Arguments>
[[nodiscard]] machine::content_ptr spawn(const task_handle& task, std::uint32_t number,
                                         Arguments&&... arguments) {
  using result = typename function<F>::result;
  if (task.is_stale()) [[unlikely]] {
    return task.scope() == nullptr ? nullptr
                                   : task.scope()->stale(task.key(), task.window(), task.site());
  }
  open_scope& scope = *task.scope();
  constexpr auto type = static_cast<std::uint32_t>(hash_of(type_name<result>()).low);
  if constexpr (only_tasks<std::remove_cvref_t<Arguments>...>) {
    if (task.key().family >= scope.beginnings.size()) [[likely]] {  // else perhaps cached
      const std::array<machine::dependency, sizeof...(Arguments)> all{dependency_on(arguments)...};
      if (!(... && is_of(arguments, scope.window()))) [[unlikely]]
        return refuse_stale(task);
      return scope.spawn(task.key(), {number, type, filled_by_tasks<sizeof...(Arguments)>, all},
                         task.site());
    }
  }
  gatherer all(scope, task.key().family);
  gather<typename function<F>::parameters, 0>(all, std::forward<Arguments>(arguments)...);
  if (all.is_stale()) [[unlikely]]
    return refuse_stale(task);
  return scope.spawn(task.key(), all.definition(number, type), task.site());
}

}  // namespace runtime
}  // namespace cohort::graph
