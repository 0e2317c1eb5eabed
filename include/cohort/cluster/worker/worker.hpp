// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One worker: shows its manager which program it is, and runs what is called.
/// \file Bodies of worker.hpp.

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/cluster/calls/call_server.hpp>
#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/link/message.hpp>
#include <cohort/cluster/link/mpi_transport.hpp>
#include <cohort/cluster/link/tcp_link.hpp>
#include <cohort/cluster/membership/renewal.hpp>
#include <cohort/cluster/worker/process.hpp>
#include <cohort/cluster/worker/start.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/host.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>
#include <cohort/progress/deadline.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <limits>
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

namespace detail {

[[nodiscard]] COHORT_INLINE std::vector<std::byte> encoded_table() {
  std::vector<std::byte> bytes;
  wire::writer out(bytes);
  const auto entries = function_table::instance().entries();
  out.varint(entries.size());
  for (const function_table::entry& each : entries) out.put(each);
  return bytes;
}

}  // namespace detail

template <class Any>
basic_worker<Any>::basic_worker(asio::io_context& io, worker_start start)
    : io_(io), start_(std::move(start)), changed_(io), server_(std::make_shared<call_server>(io)) {
  server_->on_idle([this] { answer_if_idle(); });
}

template <class Any>
basic_worker<Any>::~basic_worker() {
  server_->on_idle(nullptr);
  if (calls_) {
    calls_->retire();
    calls_->drop();
  }
  if (place_.transport) place_.transport->quit();
  watch_.reset();  // it would take our closing for the manager's
  if (control_) control_->close();
}

template <class Any>
asio::awaitable<void> basic_worker<Any>::join() {
  hello_.session = random_bytes<session_size>();
  if (start_.control) {
    control_ = start_.control;
  } else {
    auto connecting = connect_for(purpose::control);
    tcp_socket socket = co_await std::move(connecting);
    // The manager has looked at the size of what it sends.
    tcp_ = std::make_shared<tcp_link>(std::move(socket), std::numeric_limits<std::size_t>::max());
    if (!start_.adopted) {
      watch_ =
          std::make_unique<manager_watch>(tcp_->native_handle(), nanoseconds(0), leave_if_lost());
    }
    control_ = tcp_;
  }
  control_->start([this](message&& each) { received(std::move(each)); },
                  [this](std::error_code) { ended(); });
  identity self;
  self.program = program_id();
  self.table = function_table::instance().digest();
  self.session = hello_.session;
  self.host = process::host_name();
  self.machine = process::host_id();
  self.pid = ::getpid();
  self.rank = place_.id >= 0 ? place_.id : detail::rank_in_environment();
  control_->send(message_kind::identity, 0, wire::encode(self));
  while (!welcome_ && !failed_) co_await changed_.wait();
  if (failed_) std::rethrow_exception(failed_);
  if (welcome_->heartbeat > 0) co_await show_life();
  if (!start_.capture) co_return;
  co_await redirect(STDOUT_FILENO, purpose::standard_output);
  co_await redirect(STDERR_FILENO, purpose::standard_error);
}

template <class Any>
asio::awaitable<tcp_socket> basic_worker<Any>::connect_for(purpose what) {
  greeting hello = hello_;
  hello.purpose = what;
  auto connecting = connect(io_, start_.managers, start_.token, hello);
  tcp_socket socket = co_await std::move(connecting);
  // The next connection tries that address first: one that swallows what it is sent costs time.
  std::error_code unknown;
  const auto there = socket.remote_endpoint(unknown);
  auto& all = start_.managers;
  const auto at = std::find(all.begin(), all.end(), there);
  if (at != all.end()) std::rotate(all.begin(), at, at + 1);
  co_return socket;
}

template <class Any>
asio::awaitable<void> basic_worker<Any>::redirect(int descriptor, purpose what) {
  auto connecting = connect_for(what);
  tcp_socket socket = co_await std::move(connecting);
  output_.redirect(descriptor, socket.native_handle(), start_.adopted);
}

template <class Any>
asio::awaitable<void> basic_worker<Any>::connect_life() {
  auto connecting = connect_for(purpose::heartbeat);
  life_ = co_await std::move(connecting);
}

/// Begins to send signs of life.
template <class Any>
asio::awaitable<void> basic_worker<Any>::show_life() {
  const nanoseconds patience(welcome_->heartbeat_patience);
  try {
    auto connecting = connect_life();
    if (patience > patience.zero()) {
      connecting = with_deadline(std::move(connecting), patience);
    }
    co_await std::move(connecting);
    const nanoseconds period(welcome_->heartbeat);
    bound_silence(*life_, silent_heartbeats * period);
    manager_watch::lost_function lost = leave_if_lost();
    if (start_.adopted) {
      // The watch is gone before this worker is, but not what it has posted.
      lost = [this, here = std::weak_ptr(here_)](bool) {
        asio::post(io_, [this, here] {
          if (!here.expired()) life_ended();
        });
      };
    }
    watch_ = std::make_unique<manager_watch>(life_->native_handle(), period, std::move(lost));
  } catch (const std::system_error& failed) {
    if (patience == patience.zero()) throw;
    life_.reset();
    const std::string text = tcp_ ? "the end of its connection tells" : "MPI notices";
    log::write(log::level::warning,
               "no heartbeat, so only " + text + " when this worker is lost: " + failed.what());
  }
}

template <class Any>
void basic_worker<Any>::received(message&& each) {
  handle(std::move(each));
  // Large messages may come after the number; this message is counted when this function returns.
  if (!announced_ && !asked_) return;
  const std::uint64_t others = control_->received();
  seen_announced_ = announced_ && others >= *announced_;
  seen_asked_ = asked_ && others >= *asked_;
  answer_if_idle();
}

template <class Any>
void basic_worker<Any>::handle(message&& each) {
  switch (each.kind) {
    case message_kind::welcome: {
      wire::reader in(each.bytes);
      welcome_ = in.get<welcome>();
      if (!in.ok()) {
        failed_ = std::make_exception_ptr(
            error(errc::invalid_argument, "the manager's welcome makes no sense"));
      }
      return changed_.notify();
    }
    case message_kind::refused:
      return on_refused(each);
    case message_kind::ask_table:
      return control_->send(message_kind::table, 0, detail::encoded_table());
    case message_kind::ready: {
      wire::reader in(each.bytes);
      const std::uint64_t most = in.varint();
      ready_ = true;
      if (in.ok() && calls_) calls_->max_message(static_cast<std::size_t>(most));
      return;
    }
    case message_kind::call:
      return server_->called(control_, std::move(each));
    case message_kind::cancel:
      return server_->cancel(control_, each.id);
    case message_kind::result:
    case message_kind::failure:
      // A call to rank 0 of an adopted job is one to the manager; what returns false has taken
      // nothing.
      if (calls_ && !calls_->answered(manager_id, std::move(each)) && start_.adopted) {
        static_cast<void>(calls_->answered(0, std::move(each)));
      }
      return;
    case message_kind::lost:
      return on_lost(each);
    case message_kind::hold:
      return server_->hold(control_, each.id);
    case message_kind::set_aside:
      return on_set_aside(each);
    case message_kind::go_on:
      return on_go_on(each);
    case message_kind::ask_quiet: {
      wire::reader in(each.bytes);
      asked_ = in.varint();
      if (place_.transport) place_.transport->look();  // something may be stuck on this side
      return;
    }
    case message_kind::finish: {
      wire::reader in(each.bytes);
      announced_ = in.varint();
      apart_ = in.get<bool>();
      return;
    }
    default:
      return;  // of a later version, or nothing to do
  }
}

template <class Any>
void basic_worker<Any>::on_refused(const message& each) {
  if (failed_ || (done_ && !start_.adopted)) return;
  wire::reader in(each.bytes);
  const std::string text(in.text());
  if (ready_ && !start_.adopted) leave_process("the manager has let this worker go: " + text);
  failed_ = std::make_exception_ptr(
      ready_ ? error(errc::peer_lost, "the manager lets this worker go: " + text)
             : error(errc::refused, "the manager refuses this worker: " + text));
  changed_.notify();
}

template <class Any>
void basic_worker<Any>::on_lost(const message& each) {
  wire::reader in(each.bytes);
  const auto rank = in.get<std::int32_t>();
  const std::string cause(in.text());
  if (!in.ok()) return;
  if (start_.adopted) process::missing.fetch_add(1);  // it may never come to MPI_Finalize
  lost_[rank] = cause;
  const auto at = peers_.find(rank);
  if (at != peers_.end()) server_->lose(at->second);
  if (calls_) calls_->lose(rank, "rank " + std::to_string(rank), cause);
}

template <class Any>
void basic_worker<Any>::on_set_aside(const message& each) {
  const standing_aside said = server_->set_aside(control_, each.id);
  has_set_aside_ |= said.runs;
  control_->send(message_kind::stands_aside, each.id, wire::encode(said));
}

template <class Any>
void basic_worker<Any>::on_go_on(const message& each) {
  wire::reader in(each.bytes);
  const auto said = in.get<new_members>();
  if (in.ok() && !said.ids.empty()) {
    call_place known = server_->place();
    communicator& old = said.with_manager ? known.everyone : known.world;
    communicator made = renew(old, place_.control, said.ids, said.round);
    // Of workers that were launched there is one for both.
    if (!start_.adopted) place_.world = place_.everyone = known.world = known.everyone = made;
    old = made;
    (said.with_manager ? place_.everyone : place_.world) = std::move(made);
    server_->place(std::move(known));
  }
  server_->go_on(control_, each.id);
}

/// The manager's connection has ended.
template <class Any>
void basic_worker<Any>::ended() {
  if (done_) return;
  if (!start_.adopted) leave_process("the manager is gone");
  if (!failed_) {
    failed_ = std::make_exception_ptr(
        error(errc::peer_lost, "the manager is gone, or has let this worker go"));
  }
  changed_.notify();
}

/// The connection for signs of life of an adopted worker has been closed by the manager's side. If
/// the manager has let this worker go, it has said why, on another way.
template <class Any>
void basic_worker<Any>::life_ended() {
  if (done_ || failed_) return;
  const auto expecting = std::make_shared<asio::steady_timer>(io_, std::chrono::seconds(1));
  expecting->async_wait([this, here = std::weak_ptr(here_), expecting](std::error_code) {
    if (!here.expired()) ended();
  });
}

template <class Any>
void basic_worker<Any>::listen(worker_place where) {
  place_ = std::move(where);
  // Another worker may know before this one that all are there, and call.
  calls_ = std::make_shared<call_client>(
      io_, std::numeric_limits<std::uint32_t>::max(),
      [this](int rank, const std::string& text) { return route(rank, text); });
  call_place known;
  known.id = place_.id;
  known.world = place_.world;
  known.everyone = place_.everyone;
  known.peers = std::make_shared<const peers>(calls_);
  server_->place(std::move(known));
  place_.transport->start(
      [this](int rank, const std::shared_ptr<link>& with) { contact(rank, with); });
}

template <class Any>
asio::awaitable<void> basic_worker<Any>::serve() {
  control_->send(message_kind::started, 0, wire::encode(started{place_.id, place_.ids, true}));
  while (!flushed_ && !failed_) co_await changed_.wait();
  output_.restore();  // who was adopted goes on with what it had
  if (failed_) {
    server_->lose(control_);
    for (const auto& each : peers_) server_->lose(each.second);
  }
  give_up_calls();
  if (start_.control) control_->close();
  // Others may still be sending to this one, where not all is as it should be. Where MPI stays as
  // it is the manager may end its side as soon as this one has said its last word.
  const bool well = !failed_ && lost_.empty();
  auto stopping = place_.transport->stop(
      well ? std::chrono::seconds(30) : std::chrono::seconds(1),
      well && !apart_ ? std::chrono::milliseconds(0) : std::chrono::milliseconds(200));
  co_await std::move(stopping);
  server_->end();
  watch_.reset();
  place_ = worker_place();
  if (failed_) std::rethrow_exception(failed_);
}

template <class Any>
callee_process basic_worker<Any>::route(int rank, const std::string& text) {
  if (done_ || failed_) throw error(errc::closed, text + "this worker leaves");
  if (rank == manager_id || (rank == 0 && start_.adopted)) return {control_, nullptr};
  if (rank < 0 || rank >= place_.ids) {
    throw error(errc::bad_rank,
                text + "rank " + std::to_string(rank) + " of " + std::to_string(place_.ids));
  }
  if (const auto at = lost_.find(rank); at != lost_.end()) {
    throw peer_lost_error({rank},
                          text + "rank " + std::to_string(rank) + " is lost: " + at->second);
  }
  const bool known = place_.transport->knows(rank);
  const auto with = place_.transport->to(rank);
  if (!known) contact(rank, with);
  return {with, nullptr};
}

template <class Any>
void basic_worker<Any>::contact(int rank, const std::shared_ptr<link>& with) {
  peers_[rank] = with;
  with->start(
      [this, rank, weak = std::weak_ptr(with)](message&& each) {
        if (const auto here = weak.lock()) from_peer(rank, here, std::move(each));
      },
      [](std::error_code) {});
}

template <class Any>
void basic_worker<Any>::from_peer(int rank, const std::shared_ptr<link>& with, message&& each) {
  switch (each.kind) {
    case message_kind::call:
      return server_->called(with, std::move(each));
    case message_kind::cancel:
      return server_->cancel(with, each.id);
    case message_kind::result:
    case message_kind::failure:
      if (calls_) static_cast<void>(calls_->answered(rank, std::move(each)));
      return;
    default:
      return;
  }
}

/// Nobody reads answers any more.
template <class Any>
void basic_worker<Any>::give_up_calls() {
  if (!calls_) return;
  calls_->give_up_all([](std::string_view name, int rank) {
    return std::make_exception_ptr(error(errc::closed, "call of " + std::string(name) + ": rank " +
                                                           std::to_string(rank) +
                                                           ": this worker leaves"));
  });
}

template <class Any>
int basic_worker<Any>::last_sign() {
  return tcp_ ? ::fcntl(tcp_->native_handle(), F_DUPFD_CLOEXEC, 0) : -1;
}

template <class Any>
void basic_worker<Any>::answer_if_idle() {
  if (!server_->idle() || done_) return;
  if (asked_ && seen_asked_) {
    peer_traffic all;
    for (const auto& each : peers_) {
      all.sent += each.second->sent();
      all.received += each.second->received();
    }
    asked_.reset();
    control_->send(message_kind::quiet, 0, wire::encode(all));
  }
  if (!announced_ || !seen_announced_) return;
  done_ = true;
  give_up_calls();  // their cancellations are counted below
  std::vector<std::byte> bytes;
  wire::writer out(bytes);
  out.put(control_->received() >= *announced_);
  out.varint(control_->sent());
  control_->send(message_kind::finished, 0, std::move(bytes));
  control_->when_flushed([this] {
    flushed_ = true;
    changed_.notify();
  });
}

/// On the watch's thread. Where MPI stays as it is the manager hangs up when all have said their
/// last word, which may be before this one has left. Only on the connection for heartbeats can it
/// be seen whether the manager lives.
template <class Any>
manager_watch::lost_function basic_worker<Any>::leave_if_lost() {
  return [this, by_heartbeats = life_.has_value()](bool announced) {
    if (done_) return;
    leave_process(announced       ? "the manager has let this worker go"
                  : by_heartbeats ? "the manager is gone"
                                  : "the manager is gone, or has let this worker go");
  };
}

/// By whichever thread comes first: the loop, unless it computes, or the watch's.
template <class Any>
void basic_worker<Any>::leave_process(const std::string& why) {
  static std::atomic_flag leaves;
  while (leaves.test_and_set()) ::pause();
  const int rank = process::rank.load(std::memory_order_relaxed);
  const std::string text = "cohort: worker " +
                           (rank < 0 ? std::string("?") : std::to_string(rank)) + ": " + why +
                           ", so this process leaves\n";
  // Standard error may be a connection to that manager: a closed one must not kill us first. What
  // has no room, since nobody reads it, must not keep us, or who comes second.
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (::send(STDERR_FILENO, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
      errno == ENOTSOCK && ::poll(&room, 1, 0) == 1) {
    static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
  }
  ::_exit(1);
}

}  // namespace cohort::cluster
