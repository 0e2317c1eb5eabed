// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The workers of one job as its manager knows them: who they are, how they are, how far the
/// job is.
///
/// The room `membership`: connections and messages of workers enter; states, events and losses
/// leave. It starts no process.

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/job.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/link/message.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/cluster/output/capture.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
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

/// One worker.
template <class Any>
struct basic_member {
  std::array<std::byte, session_size> session{};
  std::shared_ptr<link> control;
  identity who;
  int rank = -1;
  worker_state state = worker_state::starting;
  std::string cause;
  bool over_tcp = true;
  captured_process printed;

  // Until it has started.
  bool known = false;    // it has told its identity
  bool asked = false;    // for its table
  bool welcome = false;  // it is the same program

  // Signs of life.
  bool beats = false;              // it has been asked for them
  std::optional<tcp_socket> life;  // they come from there
  bool shows_life = false;         // until it says that it leaves
  bool heard = false;              // since the last look
  int silent = 0;                  // looks in succession without a sign

  // Calls of all.
  std::uint64_t ordered = 0;                         // that it has been sent
  std::map<std::uint64_t, communicator_use> used;    // by those that have ended
  std::map<std::uint64_t, std::string> asked_about;  // those to set aside, until it answers
  std::uint64_t begun = 0;                           // the last one there, as it said then
  bool runs_aside = false;                           // one that is set aside ran then
  std::string aside;               // what runs there and was given up; empty: nothing
  bool can_be_taken_in = false;    // it was stuck and has answered
  bool flushed = false;            // all that was sent to it has left
  std::array<bool, 2> left_out{};  // of their communicator, without and with the manager

  // The end.
  bool peers = false;                      // it exchanges messages with other workers
  std::optional<peer_traffic> traffic;     // how many, as it has answered
  std::optional<std::uint64_t> announced;  // how many messages it has sent
  bool finished = false;                   // and all of them are there

  [[nodiscard]] bool is(worker_state one) const noexcept { return state == one; }
  [[nodiscard]] bool has_left() const noexcept {
    return is(worker_state::lost) || is(worker_state::gone);
  }
  /// "rank 3 (pid 4711 on node1)".
  [[nodiscard]] std::string label() const {
    std::string text = rank >= 0 ? "rank " + std::to_string(rank) : std::string("a worker");
    if (known) text += " (pid " + std::to_string(who.pid) + " on " + who.host + ")";
    return text;
  }
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
using member = basic_member<void>;
using member_ptr = std::shared_ptr<member>;

/// How far a job is.
enum class job_stage : std::uint8_t {
  unused,          ///< nothing has been launched
  starting,        ///< for the first time
  running,         ///< all workers have been there
  falling,         ///< one is lost, and the others are ended: all will be started again
  starting_again,  ///< the others are gone
  ended            ///< shut down, let go, or not launched with success
};

namespace detail {

/// "ranks 0, 2, 5"; "rank 3".
template <class Any = void>
[[nodiscard]] std::string rank_list(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += i == 0 ? " " : ", ";
    if (i == 32) return text + "… (" + std::to_string(ranks.size()) + " in all)";
    text += std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace detail

/// Used by the thread that runs the context. Part of a manager, which a shared_ptr owns: coroutines
/// that run beside keep that, by `owner`.
template <class Any>
class basic_membership {
 public:
  using membership = basic_membership;
  using clock = std::chrono::steady_clock;

  basic_membership(asio::io_context& io_, const launch_options& options_, bool adopts)
      : io(io_), options(options_), changed(io_), events_changed(io_), adopted(adopts) {}
  basic_membership(const membership&) = delete;
  basic_membership& operator=(const membership&) = delete;

  asio::io_context& io;
  const launch_options& options;
  std::weak_ptr<void> owner;
  event changed;
  event events_changed;
  const bool adopted;  // rank 0 is this process
  job_stage stage = job_stage::unused;
  bool closing = false;      // no new calls
  bool terminating = false;  // by force
  std::vector<member_ptr> joined;
  std::vector<member_ptr> ranks;    // once all have started
  std::shared_ptr<capture> output;  // null: nobody wants it

  /// A worker has sent something.
  std::function<void(const member_ptr&, message&&)> on_message;
  /// One has been lost.
  std::function<void(const member_ptr&)> on_lost;
  /// Lets go of who waits for something, because the loop is destroyed: they may own the manager.
  std::function<void()> on_loop_destroyed;

  [[nodiscard]] bool runs() const noexcept { return stage == job_stage::running; }
  [[nodiscard]] bool ended() const noexcept { return stage == job_stage::ended; }
  [[nodiscard]] bool starts_again() const noexcept {
    return stage == job_stage::falling || stage == job_stage::starting_again;
  }
  [[nodiscard]] bool is_starting() const noexcept {
    return stage == job_stage::starting || stage == job_stage::starting_again;
  }
  /// All workers have been there, in this start of the job.
  [[nodiscard]] bool has_begun() const noexcept { return !is_starting() && !ranks.empty(); }
  void end() {
    stage = job_stage::ended;
    changed.notify();
  }

  /// The id of the first worker; the others follow.
  [[nodiscard]] int first() const noexcept { return adopted ? 1 : 0; }
  [[nodiscard]] int size() const noexcept { return options.ranks(); }
  [[nodiscard]] bool has(int rank) const noexcept {
    return rank >= first() && rank < first() + size();
  }
  /// Throws if there is none.
  [[nodiscard]] const member_ptr& at(int rank) const {
    if (!has(rank)) {
      throw error(errc::bad_rank, "rank " + std::to_string(rank) + " of " + std::to_string(size()) +
                                      (adopted ? ", which begin with 1" : ""));
    }
    if (ranks.empty()) throw error(errc::manager_reused, "no launched workers");
    return ranks[static_cast<std::size_t>(rank - first())];
  }
  template <class Condition>
  [[nodiscard]] bool any(const Condition& holds) const {
    return std::any_of(ranks.begin(), ranks.end(), holds);
  }

  /// A part of what owns this, kept with all of it.
  template <class Part>
  [[nodiscard]] std::shared_ptr<Part> kept(Part* part) const {
    const auto all = owner.lock();
    return all ? std::shared_ptr<Part>(all, part) : nullptr;
  }
  /// Runs a coroutine of a part.
  void run(asio::awaitable<void> work) {
    run_beside(io, std::move(work), [all = owner.lock()](std::exception_ptr) {});
  }

  /// A connection that has proved itself, or that of a rank.
  member_ptr join(std::shared_ptr<link> control) {
    const auto made = std::make_shared<member>();
    made->control = std::move(control);
    joined.push_back(made);
    // Weak, since the member owns the link: if the loop is destroyed nothing else breaks the ring.
    const auto with_both = [self = std::weak_ptr(kept(this)),
                            weak = std::weak_ptr(made)](const auto& body) {
      const auto here = self.lock();
      if (const auto from = weak.lock(); here && from) body(*here, from);
    };
    made->control->start(
        [with_both](message&& each) {
          with_both([&](membership& here, const member_ptr& from) {
            if (!from->has_left()) here.on_message(from, std::move(each));
          });
        },
        [with_both](std::error_code why) {
          with_both(
              [&](membership& here, const member_ptr& from) { here.connection_ended(from, why); });
        });
    return made;
  }

  void connection_ended(const member_ptr& from, std::error_code why) {
    if (from->has_left()) return;
    if (from->finished) {
      leaves(from);
      return changed.notify();
    }
    if (from->announced) return lose(from, "messages were lost at the end");
    lose(from, why == asio::error::eof || why == asio::error::connection_reset
                   ? std::string("its connection was closed: the process has ended")
               : why == errc::invalid_argument ? std::string("it broke the protocol: no frame")
                                               : "its connection failed: " + why.message());
  }
  /// As it should.
  void leaves(const member_ptr& whom) {
    whom->state = worker_state::gone;
    happened({worker_event::kind::deregistered, whom->rank, {}});
  }
  enum class parting { hang_up, by_launcher };
  void lose(const member_ptr& whom, const std::string& cause, parting how = parting::hang_up) {
    if (whom->has_left()) return;
    whom->state = worker_state::lost;
    whom->cause = cause;
    if (how == parting::hang_up) part_from(whom, cause);
    on_lost(whom);
  }

  /// Closes the connections to a worker that may live, and tells it why.
  void part_from(const member_ptr& whom, const std::string& why) {
    whom->control->send_last(message_kind::refused, wire::encode(why));
    whom->close_life();
    run_beside(io, leave(whom->control, whom->over_tcp), [](std::exception_ptr) {});
  }

  void happened(worker_event each) {
    constexpr std::size_t most = 10'000;  // of those that nobody asks for
    if (events_.size() == most) events_.pop_front();
    events_.push_back(std::move(each));
    events_changed.notify();
  }
  /// Throws errc::closed when all workers have left and have been told of.
  asio::awaitable<worker_event> next_event() {
    while (events_.empty()) {
      if (!starts_again() && !any([](const member_ptr& one) { return !one->has_left(); })) {
        throw error(errc::closed, "next_event: all workers have left");
      }
      co_await events_changed.wait();
    }
    worker_event next = std::move(events_.front());
    events_.pop_front();
    co_return next;
  }

  /// Held by a coroutine that runs as long as there are workers. Unless it is released, the loop
  /// has been destroyed, and who waits for the workers is let go.
  class loop_guard {
   public:
    explicit loop_guard(membership& of) : of_(of.kept(&of)) {}
    loop_guard(const loop_guard&) = delete;
    loop_guard& operator=(const loop_guard&) = delete;
    ~loop_guard() {
      if (of_) of_->on_loop_destroyed();
    }
    void release() noexcept { of_ = nullptr; }

   private:
    std::shared_ptr<membership> of_;
  };
  /// As long as there are workers the loop has something to do.
  asio::awaitable<void> keep_until_end() {
    loop_guard guard(*this);
    while (!ended()) co_await changed.wait();
    guard.release();
  }

 private:
  /// Closes a connection when the other side has read what was sent, which it shows by closing its
  /// end, or after a second. To close it earlier would destroy what is unread.
  static asio::awaitable<void> leave(std::shared_ptr<link> control, bool over_tcp) {
    if (over_tcp) {
      const auto limit = from_now(std::chrono::seconds(1));
      while (!control->ended() && clock::now() < limit) {
        asio::steady_timer pause(co_await asio::this_coro::executor, std::chrono::milliseconds(5));
        co_await pause.async_wait(awaiting<Any>);
      }
      control->close();
    } else {
      control->when_flushed([weak = std::weak_ptr(control)] {
        if (const auto here = weak.lock()) here->close();
      });
    }
  }

  std::deque<worker_event> events_;
};
using membership = basic_membership<void>;

}  // namespace cohort::cluster
