// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What belongs to an `io_context`: how an exception leaves its main coroutine, a thread that
/// runs it, and what it keeps alive because other ranks, or MPI, still count on it.

#include <cohort/core/asio.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/backoff.hpp>
#include <cohort/progress/own_thread.hpp>

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace cohort {

/// A handler for `co_spawn` that lets an exception out of `io.run()`.
///
/// Before it throws it prints rank, message and what is in flight, because an uncaught exception
/// runs no destructor; marks the process failed, so that `~environment` ends the job rather than
/// wait in `MPI_Finalize` for ranks that wait for this one (`environment::recovered()` clears the
/// mark); and gives MPI at most 2 s to finish what is in flight, because buffers in `main` die
/// next.
struct rethrow_t {
  constexpr rethrow_t() noexcept {}

  template <class... Results>
  void operator()(std::exception_ptr error, Results&&...) const {
    if (error && !is_echo(error)) fail(std::move(error));
  }

 private:
  /// Whether this is a receive that the report of an earlier failure has given up. The loop may
  /// deliver it, because Asio keeps exceptions of dispatched handlers until the end of a turn.
  static bool is_echo(const std::exception_ptr& error);
  [[noreturn]] static void fail(std::exception_ptr error);
};

/// *Example*: `asio::co_spawn(io, train(world), cohort::rethrow);`
inline constexpr rethrow_t rethrow{};

inline bool rethrow_t::is_echo(const std::exception_ptr& error) {
  if (!process::failed.load()) return false;
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& known) {
    return known.code() == asio::error::operation_aborted;
  } catch (...) {
    return false;
  }
}

inline void rethrow_t::fail(std::exception_ptr error) {
  process::failed.store(true);
  std::string text = process::line_prefix() + process::message_of(error) + '\n';
  const std::string in_flight = process::describe_in_flight();
  if (!in_flight.empty()) text += "in flight when it was thrown:\n" + in_flight;
  process::write_last_words(text);
  process::drain_all(process::failure_time_left(progress::engine_options().drain_after_failure));
  std::rethrow_exception(std::move(error));
}

/// Runs an `io_context` on a thread while it lives, so that communication moves while the program's
/// own threads compute. Make communicators on `context()`; completions of operations that name
/// another executor arrive there.
///
/// Resuming on another thread costs microseconds (measured 4.7–5.7 us against 0.3 us in the loop),
/// so use it for computations that cannot call `cohort::poll`. Needs `thread_level::serialized`.
/// An exception that a handler throws ends the program, as it does in any thread.
class progress_thread {
 public:
  progress_thread() : work_(asio::make_work_guard(io_)) {
    own_ = &asio::use_service<progress::own_thread>(io_);
    own_->set(true);
    thread_ = std::thread([this] {
      io_.run();
      own_->set(false);  // also where somebody has stopped the context
    });
  }
  /// Lets what is in flight finish, then joins the thread.
  ~progress_thread() { join(); }
  progress_thread(const progress_thread&) = delete;
  progress_thread& operator=(const progress_thread&) = delete;

  [[nodiscard]] asio::io_context& context() noexcept { return io_; }
  [[nodiscard]] asio::io_context::executor_type get_executor() noexcept {
    return io_.get_executor();
  }

  /// The same as the destructor, earlier. Not from a handler on the thread itself.
  void join() {
    work_.reset();
    if (thread_.joinable()) thread_.join();
  }

 private:
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  progress::own_thread* own_ = nullptr;  // of the context
  std::thread thread_;
};

}  // namespace cohort

namespace cohort::progress {

/// Objects of any type. *Threads*: any.
class kept_objects {
 public:
  void add(std::shared_ptr<void> one) {
    const std::lock_guard hold(mutex_);
    all_.push_back(std::move(one));
  }
  [[nodiscard]] std::size_t size() const {
    const std::lock_guard hold(mutex_);
    return all_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<void>> all_;
};

/// What MPI still works on when its context has gone. Never destroyed.
[[nodiscard]] inline kept_objects& left_to_mpi() {
  static kept_objects& instance = *new kept_objects;
  return instance;
}

/// Found with `asio::use_service<kept_until_closed<Instance>>(io)`. An instance may go once it is
/// `closed()`. At the end of the context all that are left are told to `abandon()`, then to
/// `drive()` what can still end, then, where they have tasks, to `settle_tasks()` and
/// `destroy_tasks()`. They stay until the engine has ended, for what MPI works on refers to them.
/// *Threads*: `add` from any.
template <class Instance>
class kept_until_closed final : public asio::execution_context::service {
 public:
  using key_type = kept_until_closed;
  static inline asio::execution_context::id id;
  explicit kept_until_closed(asio::execution_context& context) : service(context) {}

  void add(std::shared_ptr<Instance> one) {
    const std::lock_guard hold(mutex_);
    if (!ends_) std::erase_if(all_, [](const auto& each) { return each->closed(); });
    all_.push_back(std::move(one));
  }

 private:
  void shutdown() override {
    ends_ = true;
    each([](Instance& one) { one.abandon(); });
    each([](Instance& one) { one.drive(); });
    if constexpr (requires(Instance& one) { one.settle_tasks(); }) {
      each([](Instance& one) { one.settle_tasks(); });
      each([](Instance& one) { one.destroy_tasks(); });
    }
  }
  // What they do may add others.
  template <class Call>
  void each(Call call) {
    for (std::size_t i = 0; i < all_.size(); ++i) call(*all_[i]);
  }

  bool ends_ = false;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Instance>> all_;
};

}  // namespace cohort::progress
