// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The manager of one launch: starts the workers, knows how they are, carries calls to them.

#include <cohort/cluster/call_options.hpp>
#include <cohort/cluster/connect.hpp>
#include <cohort/cluster/error.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/launcher.hpp>
#include <cohort/cluster/message.hpp>
#include <cohort/cluster/output.hpp>

#include <asio/signal_set.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cohort::cluster {

enum class worker_state : std::uint8_t {
  starting,  ///< its process has not joined yet
  ready,
  draining,  ///< it has been told that no more calls come
  lost,      ///< it ended, or broke the protocol; the cause is kept
  gone       ///< it ended as it should
};

/// "ready", …
[[nodiscard]] std::string_view to_text(worker_state state) noexcept;

/// Something that happened to a worker.
struct worker_event {
  enum class kind : std::uint8_t { registered, deregistered, lost };
  kind what{};
  int rank = -1;
  std::string cause;  ///< of a loss
};

/// Somebody who waits for the answer to a call. Completed exactly once.
class waiting_call {
 public:
  waiting_call() = default;
  waiting_call(const waiting_call&) = delete;
  waiting_call& operator=(const waiting_call&) = delete;
  virtual ~waiting_call() = default;

  /// Either an error, or the bytes of the result. Runs no code of the user's before it returns.
  virtual void complete(std::exception_ptr failed, std::vector<std::byte>&& result) = 0;
};

/// One call as it is given to the manager.
struct call_request {
  int rank = -1;
  std::size_t function = 0;  ///< index in the function table
  std::string_view name;     ///< of the function; for errors
  std::vector<std::byte> arguments;
  std::uint32_t flags = 0;  ///< of call_tail
  std::optional<std::chrono::nanoseconds> deadline;
};

/// Used by the thread that runs the context. Must be owned by a shared_ptr.
class manager : public std::enable_shared_from_this<manager> {
 public:
  using clock = std::chrono::steady_clock;
  using notify_error_handler = std::function<void(int rank, std::exception_ptr)>;

  manager(asio::io_context& io, launch_options options)
      : io_(io), options_(std::move(options)), changed_(io), events_changed_(io) {}

  /// Starts the workers and waits for them. Once.
  asio::awaitable<void> launch();
  /// See workers::shutdown.
  asio::awaitable<void> shutdown(std::chrono::nanoseconds limit);
  /// Ends all workers: SIGTERM, then SIGKILL to the launcher's process group. Does not wait.
  void terminate(const std::string& why);
  /// Nobody has a handle any more.
  void abandon();

  /// A number for a call, by which it can be given up.
  [[nodiscard]] std::uint64_t next_id() noexcept { return ++last_id_; }
  /// Sends a call. Every problem reaches `waiting`, which is null for a call without answer; then
  /// problems found here are thrown.
  void start(std::uint64_t id, call_request request, std::shared_ptr<waiting_call> waiting);
  /// Asks the callee to end; the call still waits for its answer.
  void cancel_callee(std::uint64_t id);
  /// Completes the call with this error and has its callee cancelled. Nothing if it has ended.
  void give_up(std::uint64_t id, std::exception_ptr why);

  /// Throws errc::closed when all workers have left and have been told of.
  asio::awaitable<worker_event> next_event();
  void on_notify_error(notify_error_handler handler) { notify_error_ = std::move(handler); }

  [[nodiscard]] asio::io_context& context() const noexcept { return io_; }
  [[nodiscard]] int size() const noexcept { return options_.ranks(); }
  [[nodiscard]] worker_state state(int rank) const;
  [[nodiscard]] const std::string& cause(int rank) const;
  [[nodiscard]] const std::string& host(int rank) const;
  [[nodiscard]] std::int64_t pid(int rank) const;
  [[nodiscard]] std::size_t pending() const noexcept { return pending_.size(); }
  [[nodiscard]] std::size_t refused() const noexcept { return refused_; }
  [[nodiscard]] std::uint64_t dropped_lines() const noexcept;

 private:
  struct member {
    std::array<std::byte, session_size> session{};
    std::shared_ptr<link> control;
    identity who;
    int rank = -1;
    worker_state state = worker_state::starting;
    std::string cause;
    std::uint64_t ordered = 0;               // ordered calls so far
    bool known = false;                      // it has told its identity
    bool asked = false;                      // for its table
    bool welcome = false;                    // it is the same program
    std::optional<std::uint64_t> announced;  // at the end: how many messages it has sent
    bool finished = false;                   // and all of them are there
    std::vector<std::pair<tcp_socket, output_stream>> unread;  // until its rank is known
  };
  using member_ptr = std::shared_ptr<member>;

  /// Lets go of who waits for calls when the loop is destroyed: they may own the manager.
  class loop_guard {
   public:
    explicit loop_guard(std::shared_ptr<manager> of) : of_(std::move(of)) {}
    loop_guard(const loop_guard&) = delete;
    loop_guard& operator=(const loop_guard&) = delete;
    ~loop_guard() {
      if (of_) std::exchange(of_->pending_, {}).clear();
    }
    void release() noexcept { of_ = nullptr; }

   private:
    std::shared_ptr<manager> of_;
  };

  struct pending_call {
    int rank;
    std::string_view name;
    std::shared_ptr<waiting_call> waiting;
    std::unique_ptr<asio::steady_timer> deadline;
  };

  // Launch.
  void listen();
  void stop_listening();
  [[nodiscard]] std::string addresses() const;
  asio::awaitable<void> accept_all();
  asio::awaitable<void> receive_visitor(std::shared_ptr<tcp_socket> socket);
  asio::awaitable<std::string> shake_hands(std::shared_ptr<tcp_socket> socket);
  void refuse(const std::string& whom, const std::string& why);
  void adopt_control(tcp_socket socket, const greeting& hello);
  void adopt_output(tcp_socket socket, const member_ptr& owner, output_stream stream);
  void read(tcp_socket socket, int rank, output_stream stream);
  asio::awaitable<void> watch_child();
  void fail_launch(errc code, const std::string& text);
  [[nodiscard]] std::string missing() const;
  asio::awaitable<void> clean_up_launch();

  // Messages.
  void received(const member_ptr& from, message&& each);
  void on_identity(const member_ptr& from, const message& each);
  void on_table(const member_ptr& from, const message& each);
  void on_started(const member_ptr& from, const message& each);
  void on_answer(const member_ptr& from, message&& each);
  void ended(const member_ptr& from, std::error_code why);
  void lose(const member_ptr& whom, const std::string& cause);
  void refuse_member(const member_ptr& whom, errc code, const std::string& text);
  [[nodiscard]] bool handle(const member_ptr& from, message&& each);
  [[nodiscard]] member& at(int rank) const;
  [[nodiscard]] std::string label(const member& whom) const;

  void complete(std::uint64_t id, std::exception_ptr failed, std::vector<std::byte>&& result);
  void event_happened(worker_event each);
  void wait_for_interrupt();
  void give_up_all(const std::exception_ptr& why);
  asio::awaitable<void> reap(std::chrono::nanoseconds limit);

  asio::io_context& io_;
  launch_options options_;
  launch_token token_{};
  event changed_;
  event events_changed_;
  std::optional<asio::basic_socket_acceptor<asio::ip::tcp, asio::io_context::executor_type>>
      acceptor_;
  std::deque<std::shared_ptr<tcp_socket>>
      visitors_;  // who have not proved themselves; oldest first
  std::vector<member_ptr> joined_;
  std::vector<member_ptr> ranks_;  // null until the rank has started
  std::shared_ptr<child_process> child_;
  std::shared_ptr<output_queue> output_;
  std::vector<std::shared_ptr<asio::cancellation_signal>> outputs_;
  std::size_t open_outputs_ = 0;
  std::chrono::nanoseconds output_bound_ = std::chrono::seconds(30);  // after the launcher's end
  std::optional<exit_status> exited_;
  std::string problem_;
  errc problem_code_ = errc::launch_failed;
  std::unordered_map<std::uint64_t, pending_call> pending_;
  std::deque<worker_event> events_;
  notify_error_handler notify_error_;
  std::optional<asio::signal_set> signals_;
  int interrupts_ = 0;
  std::uint64_t last_id_ = 0;
  std::size_t refused_ = 0;
  bool launched_ = false;
  bool ready_ = false;
  bool closing_ = false;  // no new calls
  bool ended_ = true;     // shut down, or not launched with success
  bool terminating_ = false;
};

}  // namespace cohort::cluster

#include <cohort/cluster/detail/manager.ipp>
