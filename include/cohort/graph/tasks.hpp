// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// `graph::tasks`: where the scopes of this rank are opened.
///
///     graph::tasks all(world);
///     co_await all.run("cholesky", &cholesky, n, graph::block_cyclic(2, 2));

#include <cohort/comm/operation.hpp>
#include <cohort/core/asio.hpp>
#include <cohort/core/log.hpp>
#include <cohort/graph/runtime/host.hpp>
#include <cohort/graph/scope.hpp>
#include <cohort/graph/scope_options.hpp>

#include <chrono>
#include <concepts>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace cohort::graph {

namespace runtime {

template <class Result>
struct program_result {
  static constexpr bool good = false;
  using type = void;
};
template <class Result>
struct program_result<asio::awaitable<Result>> {
  static constexpr bool good = true;
  using type = Result;
};

/// Where what a program returns is kept until its scope has closed.
template <class T>
struct kept_result {
  std::optional<T> value;
  T take() { return std::move(*value); }
};
template <>
struct kept_result<void> {
  void take() const noexcept {}
};

/// Awaits the program, and keeps what it returns; gives what it throws.
template <class T>
asio::awaitable<std::exception_ptr> outcome_of_program(asio::awaitable<T> work,
                                                       kept_result<T>& result) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(work);
    } else {
      result.value.emplace(co_await std::move(work));
    }
  } catch (...) {
    co_return std::current_exception();
  }
  co_return nullptr;
}

/// A program was cancelled, by a deadline perhaps: tells what it has waited for.
inline void warn_of_waiting(int rank, const std::string& scope, const stall_report& waited) {
  if (waited.tasks.empty()) return;
  log::write(log::level::warning, "rank " + std::to_string(rank) + ": graph: the run of '" + scope +
                                      "' was cancelled; here waited: " + text_of(waited));
}

}  // namespace runtime

/// What this rank shares with the others to execute graphs: made once, for many scopes. It must
/// outlive them. The constructor is collective over `world`, and does not block: communicators are
/// made in the background, and scopes can be opened at once. If ranks run different programs, `run`
/// throws graph::error with errc::binary_mismatch on all of them. Nor does the destructor block;
/// but `io.run()` goes on until all ranks have come to it, or until `engine_options::drain` has
/// passed. *Threads*: that of the loop.
class tasks {
 public:
  template <std::same_as<communicator> Communicator>
  explicit tasks(const Communicator& world, const tasks_options& options = {})
      : host_(runtime::make_host<void>(world, options)) {}
  tasks(tasks&&) noexcept = default;
  tasks& operator=(tasks&&) = delete;
  ~tasks() {
    if (host_) host_->leave();
  }

  /// Opens a scope of this name, with what else its options ask for, awaits `program(scope,
  /// arguments...)` and closes the scope, for which all ranks
  /// must come to this. The program is a function, because a lambda that captures and is awaited
  /// is what g++ 12 frees twice; the arguments are kept until it has ended. Gives what it returns.
  ///
  /// Scopes of one name are told apart by how often a rank has opened it, so all ranks open those
  /// of one name in one order.
  ///
  /// *Throws* what the program throws, once the scope has been cancelled with it on all ranks and
  /// is closed, too, on which theirs throw graph::error with errc::cancelled and that cause; else
  /// graph::error if there was a divergence or a failure in any window, also where the program has
  /// seen it in the report of a fence or at an await: to go on, catch it.
  /// *Cancellation* is that of what the program awaits, or of the closing, which cancels the scope.
  /// If the program ends by it, what has waited on this rank is logged before, as far as the homes
  /// tell within 100 ms.
  template <class Result, class... Parameters>
  asio::awaitable<typename runtime::program_result<Result>::type> run(
      scope_options with, Result (*program)(scope&, Parameters...),
      std::remove_cvref_t<Parameters>... arguments) const {
    constexpr bool good = runtime::program_result<Result>::good;
    static_assert(good,
                  "run: the program of a scope is a coroutine: it returns asio::awaitable<T>");
    constexpr bool kept = ((!std::is_lvalue_reference_v<Parameters> ||
                            std::is_const_v<std::remove_reference_t<Parameters>>) &&
                           ...);
    static_assert(kept,
                  "run: the program of a scope gets copies of its arguments: it takes T, const T& "
                  "or a pointer, not T&");
    if constexpr (good && kept) {
      return run_program<Result, Parameters...>(host_, std::move(with), program,
                                                std::move(arguments)...);
    } else {
      return {};
    }
  }
  template <class Program, class... Arguments>
    requires(!std::is_pointer_v<std::remove_cvref_t<Program>> &&
             !std::is_function_v<std::remove_reference_t<Program>>)
  auto run(scope_options with, const Program& program, Arguments&&... arguments) const {
    constexpr bool captures_nothing = requires { +program; };
    static_assert(captures_nothing,
                  "run: the program of a scope is a function or a captureless lambda: pass its "
                  "arguments after it");
    if constexpr (captures_nothing) {
      return run(std::move(with), +program, std::forward<Arguments>(arguments)...);
    }
  }

 private:
  template <class Result, class... Parameters>
  static asio::awaitable<typename runtime::program_result<Result>::type> run_program(
      std::shared_ptr<runtime::host> host, scope_options with,
      Result (*program)(scope&, Parameters...), std::remove_cvref_t<Parameters>... arguments) {
    using result = typename runtime::program_result<Result>::type;
    runtime::opened_scope open(host, host->open(with));
    runtime::kept_result<result> kept;
    scope mine(*open, machine::producer{}, false);
    std::exception_ptr thrown = open.prepare(with);
    if (!thrown) {
      auto work = runtime::outcome_of_program<result>(
          program(mine, std::forward<Parameters>(arguments)...), kept);
      thrown = co_await std::move(work);
    }
    // What has cancelled the program must not keep the scope from closing.
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    const bool stopped = state.cancelled() != asio::cancellation_type::none;
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    if (thrown && stopped && !mine.cancelled()) {
      auto asking = runtime::ask_within(&*open, (*open).opening(), time_to_tell, true);
      const stall_report waited = co_await std::move(asking);
      runtime::warn_of_waiting(mine.rank(), with.name(), waited);
    }
    if (thrown) mine.cancel(thrown);
    auto closing = open.close();
    static_cast<void>(co_await std::move(closing));
    co_await asio::this_coro::throw_if_cancelled(throws);
    thrown = open.verdict(std::move(thrown));
    if (thrown) std::rethrow_exception(thrown);
    co_return kept.take();
  }

  /// To homes, when it is cancelled: see `run`.
  static constexpr auto time_to_tell = std::chrono::milliseconds(100);

  std::shared_ptr<runtime::host> host_;
};

}  // namespace cohort::graph
