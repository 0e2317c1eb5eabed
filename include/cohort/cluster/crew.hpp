// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The workers of a job and all that looks after them: what follows when one says something,
/// when one is lost, when somebody ends them.

#include <cohort/cluster/calls/call_client.hpp>
#include <cohort/cluster/error.hpp>
#include <cohort/cluster/job.hpp>
#include <cohort/cluster/launch/launching.hpp>
#include <cohort/cluster/link/mpi_transport.hpp>
#include <cohort/cluster/membership/admission.hpp>
#include <cohort/cluster/membership/membership.hpp>
#include <cohort/cluster/membership/own_calls.hpp>
#include <cohort/cluster/membership/stalls.hpp>
#include <cohort/core/log.hpp>
#include <cohort/core/process.hpp>

#include <asio/signal_set.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Part of a manager, which sets `workers.owner`.
template <class Any>
class basic_crew {
 public:
  basic_crew(asio::io_context& io, const launch_options& options, bool adopts)
      : workers(io, options, adopts),
        calls(std::make_shared<call_client>(
            io, options.max_message(),
            [this](int rank, const std::string& text) { return route(rank, text); })),
        beats(workers),
        door(workers, beats, [this] { all_are_there(); }),
        launching(workers, door, [this] { ignore_signals(); }),
        stalls(workers, *calls) {
    calls->on_idle([this] {
      if (workers.closing) workers.changed.notify();
    });
    workers.on_message = [this](const member_ptr& from, message&& each) {
      received(from, std::move(each));
    };
    workers.on_lost = [this](const member_ptr& whom) { lost(whom); };
    workers.on_loop_destroyed = [this] {
      calls->drop();
      launching.forget_waiting();
    };
  }
  basic_crew(const basic_crew&) = delete;
  basic_crew& operator=(const basic_crew&) = delete;
  ~basic_crew() { calls->retire(); }

  membership workers;
  const std::shared_ptr<call_client> calls;
  heartbeats beats;
  admission door;
  cluster::launching launching;
  cluster::stalls stalls;
  std::shared_ptr<own_calls> here;           // where something may be called here
  std::shared_ptr<mpi_transport> transport;  // of messages over MPI

  void capture_output(std::vector<output_sink> sinks) {
    const launch_options& options = workers.options;
    auto queue = std::make_shared<output_queue>(std::move(sinks), options.output_bound(),
                                                options.overflow());
    workers.output = std::make_shared<capture>(workers.io, workers.changed, std::move(queue),
                                               options.longest_line());
  }
  void run_calls_here(call_place place) {
    if (here) return here->server().place(std::move(place));
    here = std::make_shared<own_calls>(workers.io, calls, workers.changed);
    here->begin(workers.io, workers.options.max_message(), std::move(place));
  }

  /// Ends all workers: SIGTERM, then SIGKILL to the launcher's process group; in an adopted job the
  /// job. Does not wait.
  void terminate(const std::string& why) {
    if (std::exchange(workers.terminating, true)) return;
    ignore_signals();
    if (workers.starts_again()) {  // that ends them
      door.fail(errc::closed, why);
      return workers.changed.notify();
    }
    if (workers.adopted) process::end_job("workers are ended, and the job with them: " + why);
    log::write(log::level::info, "workers are ended: " + why);
    if (launching.started()) return launching.terminate();
    // Ranks that somebody else has started leave by themselves.
    for (const member_ptr& each : workers.joined) workers.lose(each, why);
    workers.end();
  }

  /// The workers of an adopted job go on in their own code.
  void let_go(const std::string& why) {
    for (const member_ptr& each : workers.joined) {
      if (each->has_left()) continue;
      each->state = worker_state::gone;
      workers.part_from(each, why);
    }
    calls->give_up_all([&](const std::string& call, int rank) {
      return std::make_exception_ptr(
          peer_lost_error({rank}, call + "rank " + std::to_string(rank) + ": " + why));
    });
    if (transport) {
      // Workers may send something until they have read that they are let go; one may be inside a
      // function.
      const std::chrono::seconds linger(workers.has_begun() ? 30 : 2);
      run_beside(workers.io, transport->stop(std::chrono::seconds(2), linger),
                 [kept = transport](std::exception_ptr) {});
    }
    workers.changed.notify();
    workers.events_changed.notify();
  }

  void ignore_signals() {
    if (signals_) signals_->cancel();
  }

 private:
  void all_are_there() {
    if (workers.options.interrupt() && !signals_) {
      signals_.emplace(workers.io, SIGINT);
      wait_for_interrupt();
    }
    for (const member_ptr& one : workers.ranks) {
      one->state = worker_state::ready;
      std::vector<std::byte> bytes;
      wire::writer(bytes).varint(workers.options.max_message());
      one->control->send(message_kind::ready, 0, std::move(bytes));
      workers.happened({worker_event::kind::registered, one->rank, {}});
    }
    beats.watch();
    workers.changed.notify();
    launching.notify_waiting();
  }
  /// Once cancels the calls in flight, twice ends the workers.
  void wait_for_interrupt() {
    signals_->async_wait([self = std::weak_ptr(workers.kept(this))](std::error_code stopped, int) {
      const auto alive = self.lock();
      if (stopped || !alive) return;
      if (++alive->interrupts_ > 1) return alive->terminate("interrupted twice");
      alive->calls->interrupt();
      alive->launching.notify_waiting();
      alive->wait_for_interrupt();
    });
  }

  /// Where a call goes.
  [[nodiscard]] callee_process route(int rank, const std::string& text) const {
    if (workers.closing) throw error(errc::closed, text + "the workers are shut down");
    if (workers.starts_again()) {
      throw peer_lost_error({rank}, text + "rank " + std::to_string(rank) +
                                        " is lost, and the job is being started again");
    }
    if (!workers.runs()) throw error(errc::manager_reused, text + "no launched workers");
    if (workers.adopted && rank == 0) return {here->near(), &here->ordered};
    member& callee = *workers.at(rank);
    if (callee.is(worker_state::stuck)) {
      throw rank_error(errc::stalled, {rank}, text + callee.label() + " is stuck: " + callee.cause);
    }
    if (!callee.is(worker_state::ready)) {
      throw peer_lost_error({rank}, text + callee.label() + " is " +
                                        std::string(to_text(callee.state)) + ": " + callee.cause);
    }
    return {callee.control, &callee.ordered};
  }

  void received(const member_ptr& from, message&& each) {
    const message_kind kind = each.kind;
    if (!handle(from, std::move(each))) {
      return workers.lose(from, "it broke the protocol: a message of kind " +
                                    std::to_string(static_cast<int>(kind)) + " while it is " +
                                    std::string(to_text(from->state)));
    }
    // A large answer that nobody awaits any more may come after that number. This message is
    // counted only when this function has returned.
    if (!from->announced) return;
    const std::uint64_t others = from->control->received();
    if (others > *from->announced) {
      return workers.lose(from, "it broke the protocol: more than it announced");
    }
    from->finished = others == *from->announced;
    workers.changed.notify();  // a shutdown may wait for it
  }

  /// False if no worker sends such a message at that time.
  [[nodiscard]] bool handle(const member_ptr& from, message&& each) {
    const bool draining = from->is(worker_state::draining);
    const bool works = draining || from->is(worker_state::ready) || from->is(worker_state::stuck);
    wire::reader in(each.bytes);
    switch (each.kind) {
      case message_kind::identity:
        door.on_identity(from, each);
        return true;
      case message_kind::table:
        if (!from->asked) return false;
        door.on_table(from, each);
        return true;
      case message_kind::started:
        door.on_started(from, each);
        return true;
      case message_kind::call:
      case message_kind::cancel:
        if (!works) return false;
        called(from->control, std::move(each));
        return true;
      case message_kind::quiet:
        if (!works) return false;
        from->traffic = in.get<peer_traffic>();
        workers.changed.notify();
        return in.ok();
      case message_kind::result:
      case message_kind::failure:
        if (!works || !calls->answered(from->rank, std::move(each))) return false;
        stalls.take_in_again();
        if (stalls.watched() > 0) workers.changed.notify();
        return true;
      case message_kind::stands_aside:
        if (!works) return false;
        stalls.stands_aside(from, each.id, in.get<standing_aside>());
        return in.ok();
      case message_kind::used:
        if (!works) return false;
        from->used[each.id] = in.get<communicator_use>();
        return in.ok();
      case message_kind::finished: {
        if (!draining || from->announced) return false;
        const bool complete = in.get<bool>();
        const std::uint64_t sent = in.varint();
        if (!in.ok()) return false;
        if (complete) {
          from->announced = sent;
        } else {
          workers.lose(from, "messages were lost at the end");
        }
        return true;
      }
      default:
        return false;
    }
  }
  /// By a worker.
  void called(const std::shared_ptr<link>& from, message&& each) {
    if (workers.options.serve_calls()) return here->called(from, std::move(each));
    if (each.kind != message_kind::call) return;
    const auto why = std::make_exception_ptr(
        error(errc::refused, "this manager serves no calls: set its option serve_calls"));
    call_server::answer_error(*from, each.id, why, workers.adopted ? 0 : manager_id);
  }

  void lost(const member_ptr& whom) {
    if (!workers.has_begun()) return door.on_lost(whom);
    const std::string text = whom->label() + " is lost: " + whom->cause;
    const bool first = !workers.starts_again() && !workers.terminating;
    const bool again = first && launching.may_start_again();
    if (again) launching.will_start_again(text);         // who is told of the loss may ask
    if (workers.adopted) process::missing.fetch_add(1);  // it may never come to MPI_Finalize
    if (!whom->over_tcp) transport->expect_nothing_of(whom->rank);
    calls->lose(whom->rank, whom->label(), whom->cause);
    if (here) here->server().lose(whom->control);
    std::vector<std::byte> news;
    wire::writer out(news);
    out.put(static_cast<std::int32_t>(whom->rank));
    out.text(whom->cause);
    for (const member_ptr& each : workers.ranks) {
      if (each->is(worker_state::ready) && each->peers) {
        each->control->send(message_kind::lost, 0, news);
      }
    }
    workers.happened({worker_event::kind::lost, whom->rank, whom->cause});
    workers.changed.notify();
    if (again) {
      launching.start_again();
    } else if (first && workers.options.on_loss() != loss_policy::proceed) {
      terminate(text);
    }
  }

  std::optional<asio::signal_set> signals_;
  int interrupts_ = 0;
};
using crew = basic_crew<void>;

}  // namespace cohort::cluster
