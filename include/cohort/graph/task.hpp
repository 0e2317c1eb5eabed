// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// `graph::task<T>`, the name of a task, and `graph::family`, which names its tasks by indices.
///
///     auto f = scope.tasks<&step>("step");
///     f(i).spawn(f(i - 1), take(g(i)), 2.5);  // step(f(i - 1)'s value, g(i)'s value, 2.5)
///     double x = co_await f(i).get();         // on any rank

#include <cohort/core/asio.hpp>
#include <cohort/graph/placement.hpp>
#include <cohort/graph/runtime/await.hpp>
#include <cohort/graph/runtime/family.hpp>
#include <cohort/graph/runtime/open_scope.hpp>
#include <cohort/graph/runtime/spawn.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace cohort::graph {

/// One index of a task.
struct index {
  template <std::integral I>
  constexpr index(I one) noexcept : value(static_cast<std::int64_t>(one)) {}  // NOLINT
  std::int64_t value;
};

/// The name of a task whose value is a T, whether or not it has been spawned, here or elsewhere. A
/// handle: copied freely, valid in its window (graph K4) and as long as `graph::tasks` lives.
/// *Threads*: that of the loop.
template <class T>
class task : public runtime::task_handle {
 public:
  using value_type = T;
  using task_handle::task_handle;

  /// The value, copied here if it is elsewhere. *Completion*: `void(std::exception_ptr, T)`,
  /// without the T if that is void. *Throws* graph::error. *Cancellation*: the await is withdrawn;
  /// the task goes on. Not inside a task. From when it has begun until it ends the scope object
  /// counts as waiting, with tokens that do not block too: what only that coroutine could still
  /// spawn may end as not_spawned meanwhile. A fork is the way to do both.
  template <completion_token_for<typename runtime::value_signature<T>::type> Token = default_token>
  auto get(Token&& token = Token()) const {
    constexpr bool good = std::is_void_v<T> || std::default_initializable<T>;
    static_assert(good, "get: a value that is awaited has a default constructor");
    if constexpr (good) return runtime::initiate(scope(), body<T>(false), token);
  }
  /// The value of a source, where it is at home, before or after others ask for it.
  template <class Value>
  void put(Value&& value) const {
    constexpr bool converts = std::constructible_from<T, Value>;
    static_assert(converts, "put: this is no value of the type that the task has");
    if constexpr (converts) {
      put_content(runtime::make_value<T>(std::forward<Value>(value)), runtime::hasher_of<T>());
    }
  }
  void put() const
    requires std::is_void_v<T>
  {
    put_content(runtime::make_value<nothing>(), runtime::hasher_of<nothing>());
  }
};

/// A task that this rank can spawn, as it knows its function.
template <auto F>
class spawnable : public task<typename runtime::function<F>::result> {
  using base = task<typename runtime::function<F>::result>;

 public:
  template <class... Name>
  explicit spawnable(std::uint32_t function, Name&&... name)
      : base(std::forward<Name>(name)...), function_(function) {}

  /// Spawns the task: F's parameters are filled in order. A task fills one with its value, which it
  /// then depends on; `take(task)` with the value itself, as its last reader; a range of tasks a
  /// `std::span<const T>`, or with `take` a `std::vector<T>`; `after(task)` fills none. Anything
  /// else is a value, and is encoded now. Never waits. A second spawn of the same, here or on any
  /// other rank, changes nothing.
  /// Returns the task. If this rank can see that the spawn is wrong, awaits of what is returned
  /// fail with that, and the report of the window has it.
  template <class... Arguments>
  base spawn(Arguments&&... arguments) const {
    machine::content_ptr refused;
    if constexpr (runtime::spawn_fits<F, std::remove_cvref_t<Arguments>...>()) {
      refused = runtime::spawn<F>(*this, function_, std::forward<Arguments>(arguments)...);
    }
    base spawned = *this;
    if (refused) [[unlikely]]
      spawned.refused(std::move(refused));
    return spawned;
  }

 private:
  std::uint32_t function_;
};

/// Tasks of one function, or sources of one type, under one name. A value, copied freely; valid in
/// all windows of its scope.
template <class T, auto... F>
class family {
  static constexpr bool spawns = sizeof...(F) != 0;
  template <auto... One>
  struct named {
    using type = task<T>;
  };
  template <auto One>
  struct named<One> {
    using type = spawnable<One>;
  };
  using task_type = typename named<F...>::type;
  using site = std::source_location;

 public:
  family(runtime::open_scope& scope, machine::producer who, std::string_view name,
         const placement& where)
      : family_(scope, who, name, where, runtime::facts_of<T, F...>(name, where)),
        function_(runtime::number_of<F...>()) {}

  /// The results of these tasks are kept, and what is there does not run, in a scope that has a
  /// directory for them (scope_options::results). That holds for all of this name that this rank
  /// spawns from now on; who spawns one marks the family. Without a version each build of the
  /// program has results of its own. With one you promise that the function always gives the same
  /// under it: see function_version.
  /// *Throws* cohort::error where the function cannot be identified: invalid_argument for a version
  /// of a lambda, or for a second function of the same name; not_supported without a build id.
  family cached() const { return cached_as({}); }
  family cached(const function_version& version) const { return cached_as(version.text()); }

  /// Names a task by up to six integers, also one that is never spawned.
  task_type operator()(site where = site::current()) const { return of(where); }
  task_type operator()(index a, site where = site::current()) const { return of(where, a.value); }
  task_type operator()(index a, index b, site where = site::current()) const {
    return of(where, a.value, b.value);
  }
  task_type operator()(index a, index b, index c, site where = site::current()) const {
    return of(where, a.value, b.value, c.value);
  }
  task_type operator()(index a, index b, index c, index d, site where = site::current()) const {
    return of(where, a.value, b.value, c.value, d.value);
  }
  task_type operator()(index a, index b, index c, index d, index e,
                       site where = site::current()) const {
    return of(where, a.value, b.value, c.value, d.value, e.value);
  }
  task_type operator()(index a, index b, index c, index d, index e, index f,
                       site where = site::current()) const {
    return of(where, a.value, b.value, c.value, d.value, e.value, f.value);
  }
  template <class... Indices>
    requires(sizeof...(Indices) > 6 || !(std::convertible_to<Indices, index> && ...))
  task_type operator()(const Indices&...) const {
    static_assert(sizeof...(Indices) <= 6, "six indices name a task at most");
    constexpr bool integers = (std::is_convertible_v<Indices, index> && ...);
    static_assert(integers, "the indices of a task are integers");
    return of(site::current());
  }

 private:
  family cached_as(const std::string& version) const {
    static_assert(spawns, "cached: these are sources, and nothing is run for them");
    constexpr bool comes_back =
        std::is_void_v<T> || runtime::raw_value<T> ||
        (runtime::has_wire_format<value_of<T>>() && std::default_initializable<value_of<T>>);
    static_assert(!spawns || comes_back,
                  "cached: the result has no wire format, or no default constructor");
    if constexpr (spawns && comes_back) {
      const auto* const given = version.empty() ? nullptr : &version;
      (static_cast<void>(runtime::identity_of<F>(given)), ...);
      family_.scope->cache(family_.number, version);
    }
    return *this;
  }
  template <class... Indices>
  task_type of(const site& where, Indices... all) const {
    if constexpr (spawns) {
      return task_type(function_, family_, where, all...);
    } else {
      return task_type(family_, where, all...);
    }
  }

  runtime::family_record family_;
  std::uint32_t function_;
};

/// `take(task)`: the last reader of its value, which gets it. `take(range of tasks)`: of all.
template <class What>
class taken {
 public:
  using what_type = What;
  explicit taken(What of) : what(std::move(of)) {}

  /// The value itself, which nobody reads after that.
  template <class Token = default_token>
    requires std::derived_from<What, runtime::task_handle>
  auto get(Token&& token = Token()) const {
    using value = typename What::value_type;
    return runtime::initiate(what.scope(), what.template body<value>(true), token);
  }

  What what;
};

template <class What>
  requires(runtime::a_task<What> || runtime::tasks_range<What>)
[[nodiscard]] auto take(What&& what) {
  if constexpr (runtime::a_task<What>) {
    return taken<task<typename std::remove_cvref_t<What>::value_type>>(what);
  } else {
    return taken<runtime::range_of<What>>(runtime::range_of<What>(what));
  }
}

/// `after(task)`: only runs after it. Of many tasks: after all.
template <class What>
class later {
 public:
  using what_type = What;
  explicit later(What of) : what(std::move(of)) {}
  What what;
};

template <class What>
  requires(runtime::a_task<What> || runtime::tasks_range<What>)
[[nodiscard]] auto after(What&& what) {
  if constexpr (runtime::a_task<What>) {
    return later<runtime::task_handle>(what);
  } else {
    return later<runtime::range_of<What>>(runtime::range_of<What>(what));
  }
}

}  // namespace cohort::graph
