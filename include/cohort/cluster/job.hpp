// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One job of workers, as the handles of it and the calls on it see it.

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/core/asio.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::cluster {

enum class worker_state : std::uint8_t {
  starting,  ///< its process has not joined yet
  ready,
  draining,  ///< it has been told that no more calls come
  stuck,     ///< it does not answer since a call of all has failed; the others go on without it
  lost,      ///< it ended, or broke the protocol; the cause is kept
  gone       ///< it ended as it should
};

/// "ready", …
[[nodiscard]] inline std::string_view to_text(worker_state state) noexcept {
  constexpr std::string_view names[] = {"starting", "ready", "draining", "stuck", "lost", "gone"};
  return names[static_cast<std::size_t>(state)];
}

/// Something that happened to a worker.
struct worker_event {
  enum class kind : std::uint8_t { registered, deregistered, lost };
  kind what{};
  int rank = -1;
  std::string cause;  ///< of a loss
};

/// A call_all.
struct call_of_all {
  struct part {
    int rank;
    std::uint64_t id;
  };
  std::string_view name;
  std::vector<part> parts;
  std::chrono::nanoseconds grace{0};
  bool with_manager = false;
  int failed = -1;                           ///< the rank whose part has failed first
  std::function<void(int failed)> on_stall;  ///< gives up what has not ended, because of that rank
};

/// Kept by a coroutine, since it may begin when the handle that it was asked of is gone.
using job_handle = std::shared_ptr<const void>;

/// The manager of a job as an interface, so that files that only call functions do not compile what
/// starts, watches and ends the workers. Used by the thread that runs the context.
class job {
 public:
  job(const job&) = delete;
  job& operator=(const job&) = delete;
  virtual ~job() = default;

  /// See workers::shutdown.
  virtual asio::awaitable<void> shutdown(std::chrono::nanoseconds limit, job_handle kept) = 0;
  /// Throws errc::not_supported if this process is no rank of the job.
  virtual void check_can_run_here() const = 0;
  /// Ends all workers: SIGTERM, then SIGKILL to the launcher's process group; in an adopted job the
  /// job. Does not wait.
  virtual void terminate(const std::string& why) = 0;
  /// See workers::terminate.
  virtual void terminate(int rank) = 0;
  /// Nobody has a handle any more.
  virtual void abandon() = 0;
  /// See workers::ready.
  virtual asio::awaitable<void> ready(job_handle kept) = 0;
  /// The job has lost a rank and is being started again.
  [[nodiscard]] virtual bool starts_again() const noexcept = 0;
  /// Called once, when it runs again or never will.
  virtual void when_started_again(std::function<void()> function) = 0;
  /// That call has been sent to all.
  virtual void made(const std::shared_ptr<const call_of_all>& call) = 0;
  /// A part of that call has failed or was given up. Waits, in the background, until all callees
  /// have ended; if the grace is over before, calls `on_stall` and sets aside those that still run.
  virtual void watch(std::shared_ptr<const call_of_all> call) = 0;
  /// Whether calls of all go on without that rank: collectives inside work without it.
  [[nodiscard]] virtual bool is_left_out(int rank, bool with_manager) const = 0;
  /// Throws errc::closed when all workers have left and have been told of.
  virtual asio::awaitable<worker_event> next_event(job_handle kept) = 0;

  /// For calls of its workers.
  [[nodiscard]] virtual call_client& calls() const noexcept = 0;
  [[nodiscard]] virtual asio::io_context& context() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// The id of the first worker; the others follow. 1 in an adopted job, whose rank 0 is this.
  [[nodiscard]] virtual int first() const noexcept = 0;
  [[nodiscard]] virtual worker_state state(int rank) const = 0;
  [[nodiscard]] virtual std::string cause(int rank) const = 0;
  [[nodiscard]] virtual std::string host(int rank) const = 0;
  [[nodiscard]] virtual std::int64_t pid(int rank) const = 0;
  [[nodiscard]] virtual std::size_t refused() const noexcept = 0;

 protected:
  job() noexcept {}
};

}  // namespace cohort::cluster
