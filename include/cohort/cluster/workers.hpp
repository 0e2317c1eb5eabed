// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file `cohort::cluster::launch` and `workers`: start workers, call functions on them, end them.
///
/// ```
/// asio::awaitable<void> manage(asio::io_context& io) {
///   auto workers = co_await cluster::launch(io, cluster::launch_options{}.ranks(4));
///   const double one = co_await workers.call<&energy>(2, x);      // on rank 2
///   const auto each = co_await workers.map<&energy>(many, 0.1);   // wherever there is room
///   co_await workers.shutdown();
/// }
/// ```

#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/calls/many_calls.hpp>
#include <cohort/cluster/job.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/core/config.hpp>

#include <chrono>
#include <memory>
#include <numeric>
#include <ostream>
#include <span>  // brings the range concepts, without the cost of <ranges>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {
class communicator;
}

namespace cohort::cluster {

/// The workers of one launch. A handle: copies are the same workers. Used by the thread that runs
/// the context. When the last handle is dropped without `shutdown` the workers are ended by force,
/// in the background.
///
/// A function that is called must be named as template argument: `workers.call<&energy>(2, x)`. It
/// is found in the worker by its place in the program, so manager and workers must run the same
/// executable. It can be a coroutine (`asio::awaitable<R>`), and can take a `call_context&` first.
/// Arguments are encoded when the call is written, as the function declares its parameters; so what
/// they refer to may end before the call is awaited.
///
/// What the function throws is thrown to who awaits: of the same type where it is one of the
/// standard library's, the library's or a registered one, else as `remote_error`. A worker that is
/// lost ends its calls with `peer_lost_error`. Every call can be cancelled: it ends at once with
/// `operation_aborted`, and its callee is cancelled too.
class workers : public call_verbs<workers> {
 public:
  workers() noexcept {}
  /// For `launch`.
  explicit workers(std::shared_ptr<job> over)
      : handle_(std::make_shared<const handle>(std::move(over))) {}

  /// How many there are, lost ones included.
  [[nodiscard]] int size() const { return over().size(); }
  /// Their ranks in the job: 0, 1, … of launched workers; 1, 2, … in an adopted job.
  [[nodiscard]] std::vector<int> ids() const {
    std::vector<int> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), over().first());
    return all;
  }
  [[nodiscard]] worker_state state(int rank) const { return over().state(rank); }
  /// Why it is lost; empty if it is not.
  [[nodiscard]] std::string cause(int rank) const { return over().cause(rank); }
  [[nodiscard]] std::string host(int rank) const { return over().host(rank); }
  [[nodiscard]] std::int64_t pid(int rank) const { return over().pid(rank); }
  [[nodiscard]] asio::io_context& context() const { return over().context(); }
  /// Connections of strangers that were refused while the workers were launched.
  [[nodiscard]] std::size_t refused() const { return over().refused(); }
  /// The next thing that happens to a worker, or that happened since the launch and has not been
  /// asked for.
  [[nodiscard]] asio::awaitable<worker_event> next_event() const {
    return over().next_event(handle_);
  }
  /// Gets what functions throw that were called by `notify`, on the loop; the default logs it.
  void on_notify_error(call_client::notify_error_handler handler) const {
    over().calls().on_notify_error(std::move(handler));
  }

  /// Calls it on every worker. What they call may use collectives on `call_context::world()`: calls
  /// of this kind are begun one after the other on each worker, in the order in which they were
  /// made here. *Completion*: `void(std::exception_ptr, std::vector<outcome<R>>)`, by rank; what
  /// functions throw is in the outcomes. When one has failed the others are cancelled, and have
  /// `call_options::grace` to end; what has not is set aside (`stall_action::report`).
  template <auto Function, class... Arguments>
  auto call_all(Arguments&&... arguments) const {
    return with_token<Function, 0>(
        [&](auto&& token, auto&&... rest) {
          using result = typename callee<Function>::result;
          if (options().include_manager()) over().check_can_run_here();
          return start<result>(
              token,
              std::make_shared<detail::call_on_all<result>>(
                  handle_->over, options(), remote<Function>::index(), callee<Function>::name(),
                  encode_arguments<Function>(std::forward<decltype(rest)>(rest)...)));
        },
        std::forward<Arguments>(arguments)...);
  }

  /// Calls it once for each item of the range, which is its first argument; what follows are its
  /// other ones. Each worker has at most `call_options::per_worker` items at a time, so faster ones
  /// get more. *Completion*: `void(std::exception_ptr, std::vector<outcome<R>>)`, in the order of
  /// the range.
  template <auto Function, std::ranges::input_range Range, class... Arguments>
  auto map(Range&& range, Arguments&&... arguments) const {
    return with_token<Function, 1>(
        [&](auto&& token, auto&&... rest) {
          using result = typename callee<Function>::result;
          std::vector<payload> items;
          for (auto&& item : range) {
            items.push_back(
                encode_arguments<Function>(std::forward<decltype(item)>(item), rest...));
          }
          return start<result>(token, std::make_shared<detail::map_calls<result>>(
                                          handle_->over, options(), remote<Function>::index(),
                                          callee<Function>::name(), std::move(items)));
        },
        std::forward<Arguments>(arguments)...);
  }

  /// Ends the workers: refuses new calls (errc::closed), waits for those that were made, tells
  /// every worker that no more come and how many messages there were, and waits until each has
  /// left, for which they have a quarter of the limit, 1 to 10 seconds, in any case. Those that
  /// have not by then are named, and ended by force: throws rank_error(errc::stalled). It also
  /// names those that have left, but with a call in them that was set aside. The launcher's own end
  /// is awaited in the background.
  [[nodiscard]] asio::awaitable<void> shutdown(
      std::chrono::nanoseconds limit = std::chrono::seconds(30)) const {
    return over().shutdown(limit, handle_);
  }
  /// Ends them by force, in the background: SIGTERM, then SIGKILL after `launch_options::grace`.
  void terminate() const { over().terminate("asked for"); }
  /// Ends that worker only: its process leaves at once, also inside a function (one that is stopped
  /// when it goes on); it is lost, and its calls end with `peer_lost_error`. Throws
  /// errc::not_supported unless the workers were launched with `loss_policy::proceed`: the launcher
  /// would end the others too.
  void terminate(int rank) const { over().terminate(rank); }
  /// Completes when all can be called: at once, unless a loss has made `loss_policy::respawn` start
  /// the job again. Throws `peer_lost_error` with the cause if one is lost for good, errc::closed
  /// if they have been ended.
  [[nodiscard]] asio::awaitable<void> ready() const { return over().ready(handle_); }

  friend std::ostream& operator<<(std::ostream& out, const workers& all) {
    if (!all.handle_) return out << "no workers";
    out << all.size() << " workers";
    for (const int rank : all.ids()) {
      out << "\n  " << rank << ": " << to_text(all.state(rank)) << ", pid " << all.pid(rank)
          << " on " << all.host(rank);
      if (!all.cause(rank).empty()) out << " (" << all.cause(rank) << ")";
    }
    return out;
  }

 private:
  friend call_verbs<workers>;
  [[nodiscard]] std::shared_ptr<call_client> client() const {
    call_client& calls = over().calls();
    return {handle_->over, &calls};
  }

  struct handle {
    explicit handle(std::shared_ptr<job> over_) : over(std::move(over_)) {}
    handle(const handle&) = delete;
    handle& operator=(const handle&) = delete;
    ~handle() { over->abandon(); }

    std::shared_ptr<job> over;
  };

  [[nodiscard]] job& over() const {
    if (!handle_) throw error(errc::manager_reused, "no launched workers");
    return *handle_->over;
  }

  template <class R, class Token, class Calls>
  auto start(Token&& token, std::shared_ptr<Calls> calls) const {
    return asio::async_initiate<std::remove_cvref_t<Token>,
                                void(std::exception_ptr, std::vector<outcome<R>>)>(
        detail::start_many<R>(&asio::use_service<progress::engine>(over().context())), token,
        std::shared_ptr<detail::many_calls<R>>(std::move(calls)), std::ref(over().context()));
  }

  std::shared_ptr<const handle> handle_;
};

/// Starts workers: runs a launcher such as mpiexec, whose ranks run this program (or another copy
/// of it) and reach `serve` there; completes when all of them are ready. This process stays outside
/// MPI.
///
/// *Errors*: cohort::error with errc::launch_failed (the launcher cannot be run or ends early, with
/// its status and output; a rank dies; a launcher of another MPI), errc::deadline_exceeded (names
/// the missing ranks), errc::binary_mismatch (names the first difference), errc::invalid_argument
/// (names the option). The launcher and its ranks are gone then. *Cancellation* ends them too.
/// *Example*:
/// `auto workers = co_await cluster::launch(io, cluster::launch_options{}.ranks(4));`
template <class Any = void>
asio::awaitable<workers> launch(asio::io_context& io, launch_options options = launch_options());

/// In a job that mpirun has started, on rank 0 of `world`: makes the other ranks its workers, which
/// have called `serve(world)` or will do so; completes when all have. Their ids are 1, 2, …, their
/// ranks. The messages travel over MPI, on communicators of their own, or over TCP.
///
/// *Errors*: errc::deadline_exceeded names the ranks that do not serve; errc::binary_mismatch,
/// errc::launch_failed, errc::invalid_argument as for `launch`. The ranks that do serve go on
/// behind it then, with errc::refused. Collective in that every other rank has to call `serve` once
/// for each adoption. One at a time. *Example*: `if (world.rank() != 0) return
/// cluster::serve(world);` and, in a coroutine of rank 0, `auto workers = co_await
/// cluster::adopt(world);`
template <class Any = void>
asio::awaitable<workers> adopt(communicator world, adopt_options options = adopt_options());

}  // namespace cohort::cluster

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/cluster/manager.hpp>
#endif
