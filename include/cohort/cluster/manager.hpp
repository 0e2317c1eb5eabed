// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The manager of one job: starts or adopts the workers, knows how they are, ends them.

#include <cohort/cluster/call_client.hpp>
#include <cohort/cluster/call_options.hpp>
#include <cohort/cluster/call_server.hpp>
#include <cohort/cluster/error.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/job.hpp>
#include <cohort/cluster/launcher.hpp>
#include <cohort/cluster/message.hpp>
#include <cohort/cluster/mpi_transport.hpp>
#include <cohort/cluster/output.hpp>
#include <cohort/cluster/reception.hpp>
#include <cohort/cluster/renewal.hpp>

#include <asio/signal_set.hpp>

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Used by the thread that runs the context. Must be owned by a shared_ptr.
/// (A template, so that only who uses it compiles its bodies.)
template <class Any>
class basic_manager final : public job, public std::enable_shared_from_this<basic_manager<Any>> {
 public:
  using manager = basic_manager;
  using clock = std::chrono::steady_clock;

  basic_manager(asio::io_context& io, launch_options options);
  basic_manager(const manager&) = delete;
  basic_manager& operator=(const manager&) = delete;
  ~basic_manager() override { calls_->retire(); }

  /// Starts the workers and waits for them. Once.
  asio::awaitable<void> launch();
  /// Makes the other ranks of a running job its workers. Once, instead of `launch`.
  asio::awaitable<void> adopt(communicator world);
  /// See workers::shutdown.
  asio::awaitable<void> shutdown(std::chrono::nanoseconds limit, job_handle kept) override;
  /// Throws errc::not_supported if this process is no rank of the job.
  void check_can_run_here() const override;
  /// Ends all workers: SIGTERM, then SIGKILL to the launcher's process group; in an adopted job the
  /// job. Does not wait.
  void terminate(const std::string& why) override;
  /// See workers::terminate.
  void terminate(int rank) override;
  /// Nobody has a handle any more.
  void abandon() override;
  /// See workers::ready.
  asio::awaitable<void> ready(job_handle kept) override;
  /// The job has lost a rank and is being started again.
  [[nodiscard]] bool starts_again() const noexcept override { return starts_again_; }
  /// Called once, when it runs again or never will.
  void when_started_again(std::function<void()> function) override {
    waiting_for_start_.push_back(std::move(function));
  }

  void made(const std::shared_ptr<const call_of_all>& call) override;
  void watch(std::shared_ptr<const call_of_all> call) override;

  /// Whether calls of all go on without that rank: collectives inside work without it.
  [[nodiscard]] bool is_left_out(int rank, bool with_manager) const override;

  /// For calls of its workers.
  [[nodiscard]] call_client& calls() const noexcept override { return *calls_; }

  /// Throws errc::closed when all workers have left and have been told of.
  asio::awaitable<worker_event> next_event(job_handle kept) override;

  [[nodiscard]] asio::io_context& context() const noexcept override { return io_; }
  [[nodiscard]] int size() const noexcept override { return options_.ranks(); }
  /// The id of the first worker; the others follow. 1 in an adopted job, whose rank 0 is this.
  [[nodiscard]] int first() const noexcept override { return first_; }
  [[nodiscard]] worker_state state(int rank) const override;
  [[nodiscard]] std::string cause(int rank) const override;
  [[nodiscard]] std::string host(int rank) const override;
  [[nodiscard]] std::int64_t pid(int rank) const override;
  [[nodiscard]] std::size_t refused() const noexcept override {
    return reception_ ? reception_->refused() : 0;
  }

 private:
  struct member {
    std::array<std::byte, session_size> session{};
    std::shared_ptr<link> control;
    std::shared_ptr<link> far;  // the other end, if it is this process
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
    bool over_tcp = true;
    bool beats = false;                   // it has been asked for signs of life
    std::optional<tcp_socket> life;       // they come from there
    bool shows_life = false;              // until it says that it leaves
    bool heard = false;                   // since the last look
    int silent = 0;                       // looks in succession without a sign
    bool peers = false;                   // it exchanges messages with other workers
    std::optional<peer_traffic> traffic;  // the answer to the last question
    std::string aside;                    // what runs there and was given up; empty: nothing
    std::map<std::uint64_t, std::string> asked_about;  // calls to set aside, until it answers
    bool runs_aside = false;                           // one of them ran then
    std::uint64_t begun = 0;                         // the last ordered call there, as it said then
    std::map<std::uint64_t, communicator_use> used;  // by ordered calls that have ended
    bool can_be_taken_in = false;                    // it was stuck and has answered
    bool told = false;                               // all that was sent to it has left
    std::array<bool, 2> left_out{};  // of the communicator of calls of all, without and with us
    std::vector<std::pair<tcp_socket, output_stream>> unread;       // until its rank is known
    std::vector<std::weak_ptr<asio::cancellation_signal>> outputs;  // end the reading of them

    /// Says that it was on purpose: a manager that is gone says nothing.
    void close_life() {
      if (!life || !life->is_open()) return;
      constexpr auto last = life_sign::leaves;
      static_cast<void>(
          ::send(life->native_handle(), &last, sizeof last, MSG_NOSIGNAL | MSG_DONTWAIT));
      std::error_code ignored;
      life->close(ignored);
    }
    void hang_up() {
      control->close();
      close_life();
    }
  };
  using member_ptr = std::shared_ptr<member>;

  /// Lets go of who waits for calls when the loop is destroyed: they may own the manager.
  class loop_guard {
   public:
    explicit loop_guard(std::shared_ptr<manager> of) : of_(std::move(of)) {}
    loop_guard(const loop_guard&) = delete;
    loop_guard& operator=(const loop_guard&) = delete;
    ~loop_guard() {
      if (!of_) return;
      of_->calls_->drop();
      of_->waiting_for_start_.clear();
    }
    void release() noexcept { of_ = nullptr; }

   private:
    std::shared_ptr<manager> of_;
  };

  // Launch.
  void begin();
  asio::awaitable<void> wait_until_ready(clock::time_point limit);
  asio::awaitable<void> keep_until_end();
  asio::awaitable<void> start_launcher();
  void all_are_ready();
  void check_policy() const;
  void run_calls_here();
  void called(const std::shared_ptr<link>& from, message&& each);
  void let_go(const std::string& why);
  void part_from(const member_ptr& whom, const std::string& why);
  static asio::awaitable<void> leave(std::shared_ptr<link> control, bool over_tcp);
  void listen();
  void stop_listening();
  [[nodiscard]] member_ptr member_of(const greeting& hello) const;
  [[nodiscard]] bool expects(const greeting& hello) const;
  void arrived(const greeting& hello, tcp_socket&& socket);
  member_ptr join(std::shared_ptr<link> control);
  static asio::awaitable<void> listen_to(std::weak_ptr<manager> over, member_ptr whom);
  asio::awaitable<void> look_for_silent_ones();
  asio::awaitable<void> start_again();
  asio::awaitable<void> end_old_job();
  asio::awaitable<void> try_to_start_again(clock::time_point limit);
  void give_up_starting(bool wanted);
  void tell_who_waits_for_start();
  void adopt_output(tcp_socket socket, const member_ptr& owner, output_stream stream);
  void read(tcp_socket socket, const member_ptr& owner, int rank, output_stream stream);
  void read_unread(const member_ptr& from);
  asio::awaitable<void> watch_child();
  asio::awaitable<void> read_to_the_end(clock::time_point limit);
  void fail_launch(errc code, const std::string& text);
  [[nodiscard]] std::string words_of_launcher() const;
  [[nodiscard]] std::string missing() const;
  asio::awaitable<void> clean_up_launch();

  // Messages.
  void received(const member_ptr& from, message&& each);
  void on_identity(const member_ptr& from, const message& each);
  void on_table(const member_ptr& from, const message& each);
  void on_started(const member_ptr& from, const message& each);
  void on_answer(const member_ptr& from, message&& each);
  void ended(const member_ptr& from, std::error_code why);
  enum class parting { hang_up, by_launcher };
  void lose(const member_ptr& whom, const std::string& cause, parting how = parting::hang_up);
  void refuse_member(const member_ptr& whom, errc code, const std::string& text);
  [[nodiscard]] bool handle(const member_ptr& from, message&& each);
  [[nodiscard]] member& at(int rank) const;
  [[nodiscard]] callee_process route(int rank, const std::string& text) const;
  [[nodiscard]] std::string label(const member& whom) const;

  // Calls of all that stall.
  using call_ptr = std::shared_ptr<const call_of_all>;
  asio::awaitable<void> settle_call(call_ptr call);
  void call_is_settled(const std::exception_ptr& failed);
  asio::awaitable<void> set_aside(call_ptr call, bool anew);
  asio::awaitable<bool> ask_to_set_aside(std::vector<call_ptr> calls);
  [[nodiscard]] std::vector<call_ptr> begun_after(const call_of_all& call) const;
  [[nodiscard]] bool has_left_over(const call_of_all& call) const;
  [[nodiscard]] bool earlier_one_runs(const call_of_all& call) const;
  [[nodiscard]] bool is_uneven(const call_of_all& call) const;
  void stands_aside(const member_ptr& from, std::uint64_t id, const standing_aside& said);
  void make_stuck(const member_ptr& whom, const call_of_all& call);
  void take_in_again();
  void go_on_as_before(const call_of_all& call);
  void tell_to_go_on(const call_of_all& call, const new_members& whom);
  asio::awaitable<void> until_told(std::vector<member_ptr> them);
  [[nodiscard]] bool leaves_mpi_as_it_is() const;

  void event_happened(worker_event each);
  void wait_for_interrupt();
  asio::awaitable<bool> settle(clock::time_point limit);
  asio::awaitable<void> reap(std::chrono::nanoseconds limit);

  asio::io_context& io_;
  launch_options options_;
  std::shared_ptr<call_client> calls_;
  std::shared_ptr<call_server> server_;  // where something may be called here
  member_ptr here_;                      // this process, as one that functions are called in
  std::shared_ptr<mpi_transport> transport_;
  communicator control_;  // of an adopted job; no collectives
  launch_token token_{};
  event changed_;
  event events_changed_;
  std::shared_ptr<reception> reception_;  // where TCP is used
  std::vector<member_ptr> joined_;
  std::vector<member_ptr> ranks_;  // once all have started
  std::vector<member_ptr> begun_;  // while they start: null until that rank has
  std::shared_ptr<child_process> child_;
  std::shared_ptr<output_queue> output_;
  std::vector<std::shared_ptr<asio::cancellation_signal>> outputs_;
  std::size_t open_outputs_ = 0;
  std::chrono::nanoseconds output_bound_ = std::chrono::seconds(30);  // after the launcher's end
  std::optional<exit_status> exited_;
  std::string problem_;
  errc problem_code_ = errc::launch_failed;
  std::deque<worker_event> events_;
  std::optional<asio::signal_set> signals_;
  int interrupts_ = 0;
  int first_ = 0;
  bool adopted_ = false;
  bool launched_ = false;
  bool ready_ = false;
  bool closing_ = false;  // no new calls
  bool ended_ = true;     // shut down, or not launched with success
  bool terminating_ = false;
  std::chrono::nanoseconds heartbeat_{0};
  std::uint64_t machine_ = 0;
  bool watches_child_ = false;  // until the launcher has ended and all its output is read
  bool starts_again_ = false;   // a loss has made that necessary, and not all are ready
  bool restart_runs_ = false;   // the coroutine that does it
  std::string again_because_;
  int times_started_again_ = 0;
  std::vector<std::function<void()>> waiting_for_start_;
  std::deque<std::weak_ptr<const call_of_all>> calls_of_all_;  // in the order of their ids
  std::array<std::uint64_t, 2> settled_{};  // up to that id, without and with us: by a renewal
  int watched_calls_ = 0;                   // of all, of which a part has failed
  bool sets_aside_ = false;                 // one after the other
  std::int32_t rounds_ = 0;                 // of new communicators
};
using manager = basic_manager<void>;

}  // namespace cohort::cluster

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/cluster/detail/manager.ipp>
#include <cohort/cluster/detail/stalled_calls.ipp>
#endif
