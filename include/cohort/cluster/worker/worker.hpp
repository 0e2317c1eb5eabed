// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One worker: shows its manager which program it is, and runs what is called.
///
/// The room `worker`: what a process needs to be one enters; answers leave, and the reasons for
/// which it ends.

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/cluster/calls/call_server.hpp>
#include <cohort/cluster/calls/call_verbs.hpp>
#include <cohort/cluster/event.hpp>
#include <cohort/cluster/link/message.hpp>
#include <cohort/cluster/link/mpi_transport.hpp>
#include <cohort/cluster/membership/invitation.hpp>
#include <cohort/cluster/worker/way_to_manager.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/process.hpp>

#include <unistd.h>

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
  call_place calls;      ///< what its callees know; `peers` is made by the worker
  int ids = 0;           ///< the manager's included where it has one
  communicator control;  ///< its ranks are ids; no collectives
  std::shared_ptr<mpi_transport> transport;  ///< its ranks are ids
};

/// Used by the thread that runs the context.
template <class Any>
class basic_worker {
 public:
  using worker = basic_worker;
  basic_worker(asio::io_context& io, worker_start start)
      : io_(io),
        changed_(io),
        server_(std::make_shared<call_server>(io)),
        manager_(io, std::move(start)) {
    server_->on_idle([this] { answer_if_idle(); });
  }
  basic_worker(const worker&) = delete;
  basic_worker& operator=(const worker&) = delete;
  ~basic_worker() {
    server_->on_idle(nullptr);
    if (calls_) {
      calls_->retire();
      calls_->drop();
    }
    if (place_.transport) place_.transport->quit();
  }

  /// Shows the manager which program this is, and redirects stdout and stderr. Throws
  /// error(errc::refused) with the manager's reason.
  asio::awaitable<void> join() {
    co_await manager_.open();
    control().start([this](message&& each) { received(std::move(each)); },
                    [this](std::error_code) { ended(); });
    identity self;
    self.program = program_id();
    self.table = function_table::instance().digest();
    self.session = manager_.session();
    self.host = process::host_name();
    self.machine = process::host_id();
    self.pid = ::getpid();
    const int known = server_->place().id;
    self.rank = known >= 0 ? known : detail::rank_in_environment();
    control().send(message_kind::identity, 0, wire::encode(self));
    while (!welcome_ && !failed_) co_await changed_.wait();
    if (failed_) std::rethrow_exception(failed_);
    if (welcome_->heartbeat > 0) {
      auto showing = manager_.show_life(*welcome_, [this] { life_ended(); });
      co_await std::move(showing);
    }
    co_await manager_.redirect_outputs();
  }

  /// From here on messages come over MPI. Before `join` if those of the manager do, else after it.
  void listen(worker_place where) {
    place_ = std::move(where);
    // Another worker may know before this one that all are there, and call.
    calls_ = std::make_shared<call_client>(
        io_, std::numeric_limits<std::uint32_t>::max(),
        [this](int rank, const std::string& text) { return route(rank, text); });
    place_.calls.peers = std::make_shared<const peers>(calls_);
    server_->place(std::exchange(place_.calls, {}));
    place_.transport->start(
        [this](int rank, const std::shared_ptr<link>& with) { contact(rank, with); });
  }

  /// Serves calls until the manager says that no more come. Throws error(errc::peer_lost) if an
  /// adopted worker loses the manager or is let go by it; one that was launched leaves the process
  /// then.
  asio::awaitable<void> serve() {
    control().send(message_kind::started, 0,
                   wire::encode(started{server_->place().id, place_.ids, true}));
    while (!flushed_ && !failed_) co_await changed_.wait();
    manager_.restore_outputs();
    if (failed_) {
      server_->lose(manager_.control());
      for (const auto& each : peers_) server_->lose(each.second);
    }
    give_up_calls();
    if (manager_.over_mpi()) control().close();
    // Others may still be sending to this one, where not all is as it should be. Where MPI stays as
    // it is the manager may end its side as soon as this one has said its last word.
    const bool well = !failed_ && lost_.empty();
    const std::chrono::seconds bound(well ? 30 : 1);
    const std::chrono::milliseconds linger(well && !apart_ ? 0 : 200);
    co_await place_.transport->stop(bound, linger);
    server_->end();
    manager_.stop_watching();
    place_ = worker_place();
    if (failed_) std::rethrow_exception(failed_);
  }

  /// Whether MPI_Finalize might wait for ever: another worker is lost, or one is stuck.
  [[nodiscard]] bool leaves_mpi_as_it_is() const noexcept { return apart_ || !lost_.empty(); }
  /// Whether no worker may leave before all have said that they do: the launcher ends the others
  /// when the first has left MPI as it is.
  [[nodiscard]] bool leaves_with_all() const noexcept { return apart_; }
  /// Whether a call runs that the manager has given up for good.
  [[nodiscard]] bool has_set_aside() const noexcept { return has_set_aside_; }
  /// The TCP connection that tells the manager, by its end, that this process is done.
  [[nodiscard]] int last_sign() { return manager_.last_sign(); }

 private:
  [[nodiscard]] link& control() const { return *manager_.control(); }

  void received(message&& each) {
    handle(std::move(each));
    // Large messages may come after the number; this message is counted when this function returns.
    if (!announced_ && !asked_) return;
    const std::uint64_t others = control().received();
    seen_announced_ = announced_ && others >= *announced_;
    seen_asked_ = asked_ && others >= *asked_;
    answer_if_idle();
  }

  void handle(message&& each) {
    wire::reader in(each.bytes);
    switch (each.kind) {
      case message_kind::welcome:
        welcome_ = in.get<welcome>();
        if (!in.ok()) fail(errc::invalid_argument, "the manager's welcome makes no sense");
        return changed_.notify();
      case message_kind::refused:
        return on_refused(std::string(in.text()));
      case message_kind::ask_table: {
        const auto all = function_table::instance().entries();
        const std::vector<function_table::entry> table(all.begin(), all.end());
        return control().send(message_kind::table, 0, wire::encode(table));
      }
      case message_kind::ready: {
        const std::uint64_t most = in.varint();
        ready_ = true;
        if (in.ok() && calls_) calls_->max_message(static_cast<std::size_t>(most));
        return;
      }
      case message_kind::call:
      case message_kind::cancel:
      case message_kind::result:
      case message_kind::failure:
        return on_call(manager_id, manager_.control(), std::move(each));
      case message_kind::lost: {
        const auto rank = in.get<std::int32_t>();
        const std::string cause(in.text());
        if (in.ok()) on_lost(rank, cause);
        return;
      }
      case message_kind::hold:
        return server_->hold(manager_.control(), each.id);
      case message_kind::set_aside: {
        const standing_aside said = server_->set_aside(manager_.control(), each.id);
        has_set_aside_ |= said.runs;
        return control().send(message_kind::stands_aside, each.id, wire::encode(said));
      }
      case message_kind::go_on: {
        const auto said = in.get<new_members>();
        if (in.ok() && !said.ids.empty()) use_new_communicator(said);
        return server_->go_on(manager_.control(), each.id);
      }
      case message_kind::ask_quiet:
        asked_ = in.varint();
        if (place_.transport) place_.transport->look();  // something may be stuck on this side
        return;
      case message_kind::finish:
        announced_ = in.varint();
        apart_ = in.get<bool>();
        return;
      default:
        return;  // of a later version, or nothing to do
    }
  }
  /// Of the manager, or another worker: what all who can call functions send.
  void on_call(int from, const std::shared_ptr<link>& over, message&& each) {
    switch (each.kind) {
      case message_kind::call:
        return server_->called(over, std::move(each));
      case message_kind::cancel:
        return server_->cancel(over, each.id);
      case message_kind::result:
      case message_kind::failure:
        // A call to rank 0 of an adopted job is one to the manager; what returns false has taken
        // nothing.
        if (calls_ && !calls_->answered(from, std::move(each)) && from == manager_id &&
            manager_.adopted()) {
          static_cast<void>(calls_->answered(0, std::move(each)));
        }
        return;
      default:
        return;
    }
  }
  void on_refused(const std::string& text) {
    const bool adopted = manager_.adopted();
    if (failed_ || (manager_.is_done() && !adopted)) return;
    if (!ready_) {
      fail(errc::refused, "the manager refuses this worker: " + text);
    } else if (adopted) {
      fail(errc::peer_lost, "the manager lets this worker go: " + text);
    } else {
      way_to_manager::leave_process("the manager has let this worker go: " + text);
    }
    changed_.notify();
  }
  void on_lost(int rank, const std::string& cause) {
    if (manager_.adopted()) process::missing.fetch_add(1);  // it may never come to MPI_Finalize
    lost_[rank] = cause;
    const auto at = peers_.find(rank);
    if (at != peers_.end()) server_->lose(at->second);
    if (calls_) calls_->lose(rank, "rank " + std::to_string(rank), cause);
  }
  void use_new_communicator(const new_members& said) {
    call_place known = server_->place();
    communicator& old = said.with_manager ? known.everyone : known.world;
    const communicator made = renew(old, place_.control, said.ids, said.round);
    old = made;
    // Of workers that were launched there is one for both.
    if (!manager_.adopted()) known.world = known.everyone = made;
    server_->place(std::move(known));
  }

  void fail(errc code, const std::string& text) {
    failed_ = std::make_exception_ptr(error(code, text));
  }
  /// The manager's connection has ended.
  void ended() {
    if (manager_.is_done()) return;
    if (!manager_.adopted()) way_to_manager::leave_process("the manager is gone");
    if (!failed_) fail(errc::peer_lost, "the manager is gone, or has let this worker go");
    changed_.notify();
  }
  /// The connection for signs of life of an adopted worker has been closed by the manager's side.
  /// If the manager has let this worker go, it has said why, on another way.
  void life_ended() {
    if (manager_.is_done() || failed_) return;
    const auto expecting = std::make_shared<asio::steady_timer>(io_, std::chrono::seconds(1));
    expecting->async_wait([this, here = manager_.alive(), expecting](std::error_code) {
      if (!here.expired()) ended();
    });
  }

  [[nodiscard]] callee_process route(int rank, const std::string& text) {
    if (manager_.is_done() || failed_) throw error(errc::closed, text + "this worker leaves");
    if (rank == manager_id || (rank == 0 && manager_.adopted())) {
      return {manager_.control(), nullptr};
    }
    if (rank < 0 || rank >= place_.ids) {
      throw error(errc::bad_rank,
                  text + "rank " + std::to_string(rank) + " of " + std::to_string(place_.ids));
    }
    if (const auto at = lost_.find(rank); at != lost_.end()) {
      throw peer_lost_error({rank},
                            text + "rank " + std::to_string(rank) + " is lost: " + at->second);
    }
    const bool known = place_.transport->has_link(rank);
    const auto with = place_.transport->to(rank);
    if (!known) contact(rank, with);
    return {with, nullptr};
  }
  /// Another worker and this one have begun to talk.
  void contact(int rank, const std::shared_ptr<link>& with) {
    peers_[rank] = with;
    with->start(
        [this, rank, weak = std::weak_ptr(with)](message&& each) {
          if (const auto here = weak.lock()) on_call(rank, here, std::move(each));
        },
        [](std::error_code) {});
  }

  /// Nobody reads answers any more.
  void give_up_calls() {
    if (!calls_) return;
    calls_->give_up_all([](const std::string& call, int rank) {
      return std::make_exception_ptr(
          error(errc::closed, call + "rank " + std::to_string(rank) + ": this worker leaves"));
    });
  }
  void answer_if_idle() {
    if (!server_->idle() || manager_.is_done()) return;
    if (asked_ && seen_asked_) {
      peer_traffic all;
      for (const auto& each : peers_) {
        all.sent += each.second->sent();
        all.received += each.second->received();
      }
      asked_.reset();
      control().send(message_kind::quiet, 0, wire::encode(all));
    }
    if (!announced_ || !seen_announced_) return;
    manager_.done();
    give_up_calls();  // their cancellations are counted below
    std::vector<std::byte> bytes;
    wire::writer out(bytes);
    out.put(control().received() >= *announced_);
    out.varint(control().sent());
    control().send(message_kind::finished, 0, std::move(bytes));
    control().when_flushed([this] {
      flushed_ = true;
      changed_.notify();
    });
  }

  asio::io_context& io_;
  event changed_;
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
  bool seen_announced_ = false;
  bool seen_asked_ = false;
  bool apart_ = false;          // as the manager says
  bool has_set_aside_ = false;  // a call
  bool flushed_ = false;        // the last word has left
  way_to_manager manager_;
};
using worker = basic_worker<void>;

}  // namespace cohort::cluster
