// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One worker: shows its manager which program it is, and runs what is called.

#include <cohort/cluster/call_client.hpp>
#include <cohort/cluster/call_server.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/message.hpp>
#include <cohort/cluster/mpi_transport.hpp>
#include <cohort/cluster/redirection.hpp>
#include <cohort/cluster/renewal.hpp>
#include <cohort/cluster/watch.hpp>
#include <cohort/cluster/worker_start.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Where a worker is, once MPI has begun.
struct worker_place {
  int id = -1;                               ///< its rank in the job
  int ids = 0;                               ///< the manager's included where it has one
  communicator world;                        ///< the workers
  communicator everyone;                     ///< with the manager, in an adopted job
  communicator control;                      ///< its ranks are ids; no collectives
  std::shared_ptr<mpi_transport> transport;  ///< its ranks are ids
};

/// Used by the thread that runs the context.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_worker {
 public:
  using worker = basic_worker;
  basic_worker(asio::io_context& io, worker_start start);
  basic_worker(const worker&) = delete;
  basic_worker& operator=(const worker&) = delete;
  ~basic_worker();

  /// Shows the manager which program this is, and redirects stdout and stderr. Throws
  /// error(errc::refused) with the manager's reason.
  asio::awaitable<void> join();
  /// From here on messages come over MPI. Before `join` if those of the manager do, else after it.
  void listen(worker_place where);
  /// Serves calls until the manager says that no more come. Throws error(errc::peer_lost) if an
  /// adopted worker loses the manager or is let go by it; one that was launched leaves the process
  /// then.
  asio::awaitable<void> serve();
  /// Whether MPI_Finalize might wait for ever: another worker is lost, or one is stuck.
  [[nodiscard]] bool leaves_mpi_as_it_is() const noexcept { return apart_ || !lost_.empty(); }
  /// Whether no worker may leave before all have said that they do: the launcher ends the others
  /// when the first has left MPI as it is.
  [[nodiscard]] bool leaves_with_all() const noexcept { return apart_; }
  /// Whether a call runs that the manager has given up for good.
  [[nodiscard]] bool has_set_aside() const noexcept { return has_set_aside_; }
  /// The TCP connection that tells the manager, by its end, that this process is done.
  [[nodiscard]] int last_sign();

 private:
  using nanoseconds = std::chrono::nanoseconds;
  [[nodiscard]] asio::awaitable<tcp_socket> connect_for(purpose what);
  asio::awaitable<void> redirect(int descriptor, purpose what);
  asio::awaitable<void> connect_life();
  asio::awaitable<void> show_life();
  void received(message&& each);
  void handle(message&& each);
  void on_refused(const message& each);
  void on_lost(const message& each);
  void on_set_aside(const message& each);
  void on_go_on(const message& each);
  void ended();
  void life_ended();
  void contact(int rank, const std::shared_ptr<link>& with);
  void from_peer(int rank, const std::shared_ptr<link>& with, message&& each);
  [[nodiscard]] callee_process route(int rank, const std::string& text);
  void answer_if_idle();
  void give_up_calls();
  [[nodiscard]] manager_watch::lost_function leave_if_lost();
  [[noreturn]] static void leave_process(const std::string& why);

  asio::io_context& io_;
  worker_start start_;
  event changed_;
  greeting hello_;
  std::shared_ptr<link> control_;
  std::shared_ptr<tcp_link> tcp_;
  std::optional<tcp_socket> life_;  // signs of life go there
  std::unique_ptr<manager_watch> watch_;
  redirection output_;
  worker_place place_;
  std::shared_ptr<call_server> server_;
  std::shared_ptr<call_client> calls_;  // to peers
  std::map<int, std::shared_ptr<link>> peers_;
  std::map<int, std::string> lost_;
  std::optional<welcome> welcome_;
  bool ready_ = false;  // all workers are there
  std::exception_ptr failed_;
  std::optional<std::uint64_t> announced_;  // messages that the manager has sent before `finish`
  std::optional<std::uint64_t> asked_;      // before `ask_quiet`, until that is answered
  bool apart_ = false;                      // as the manager says
  bool has_set_aside_ = false;              // a call
  bool seen_announced_ = false;
  bool seen_asked_ = false;
  std::atomic<bool> done_{false};  // the last word has been said; the watch asks
  bool flushed_ = false;
  std::shared_ptr<worker*> here_ = std::make_shared<worker*>(this);
};
using worker = basic_worker<void>;

}  // namespace cohort::cluster

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/cluster/detail/worker.ipp>
#endif
