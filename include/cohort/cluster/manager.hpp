// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The manager of one job: starts or adopts the workers, and is what handles and calls see of
/// them; `launch` and `adopt`, which make one.

#include <cohort/cluster/crew.hpp>
#include <cohort/cluster/job.hpp>
#include <cohort/cluster/launch_options.hpp>
#include <cohort/cluster/membership/farewell.hpp>
#include <cohort/cluster/membership/invitation.hpp>
#include <cohort/cluster/sinks.hpp>
#include <cohort/cluster/workers.hpp>
#include <cohort/core/log.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// Used by the thread that runs the context. Must be owned by a shared_ptr.
template <class Any>
class basic_manager final : public job, public std::enable_shared_from_this<basic_manager<Any>> {
 public:
  using manager = basic_manager;
  using clock = std::chrono::steady_clock;

  /// `adopts`: the workers are the other ranks of a running job.
  basic_manager(asio::io_context& io, launch_options options, bool adopts)
      : options_(std::move(options)), crew_(io, options_, adopts) {}
  basic_manager(const manager&) = delete;
  basic_manager& operator=(const manager&) = delete;

  /// Starts the workers and waits for them. Once.
  asio::awaitable<void> launch() {
    if (options_.transport() != transport::tcp) {
      validate(options_);
      throw error(errc::not_supported,
                  "launch: the control messages of workers that are launched "
                  "travel over TCP; MPI is for jobs that mpirun has started");
    }
    begin("launch");
    const auto limit = from_now(options_.timeout());
    if (options_.ranks() == 0) {
      workers().stage = job_stage::running;
      co_return;
    }
    if (options_.serve_calls()) {
      call_place place;
      place.id = manager_id;
      crew_.run_calls_here(std::move(place));
    }
    crew_.capture_output(options_.sinks().empty() ? std::vector<output_sink>{console()}
                                                  : options_.sinks());
    crew_.door.begin();
    crew_.door.listen();
    if (options_.by_hand()) {
      options_.by_hand()(crew_.door.addresses(), to_text(crew_.door.token()));
      crew_.door.open();
      workers().run(workers().keep_until_end());
    } else {
      co_await crew_.launching.start();
    }
    std::exception_ptr interrupted;
    try {
      co_await crew_.door.wait(limit);
    } catch (...) {
      interrupted = std::current_exception();
    }
    if (workers().has_begun()) co_return;
    crew_.door.close();
    if (interrupted) {
      crew_.door.set_problem("cancelled");
      terminate("the launch was cancelled");
      workers().end();
      std::rethrow_exception(interrupted);
    }
    co_await crew_.launching.clean_up();
    workers().end();
    const std::string text =
        "launch of " + std::to_string(size()) + " ranks: " + crew_.door.problem();
    throw error(crew_.door.problem_code(), text + crew_.launching.words());
  }

  /// Makes the other ranks of a running job its workers. Once, instead of `launch`.
  asio::awaitable<void> adopt(communicator world) {
    if (world.rank() != 0) {
      throw error(errc::invalid_argument, "adopt: rank " + std::to_string(world.rank()) +
                                              " is a worker, it calls serve; rank 0 adopts");
    }
    begin("adopt");
    const auto limit = from_now(options_.timeout());
    if (options_.ranks() == 0) {
      const adopted_communicators made = co_await make_communicators(world);
      crew_.run_calls_here({0, {}, made.everyone, {}});
      crew_.stalls.begin(crew_.here, {});
      workers().stage = job_stage::running;
      co_return;
    }
    invitation what;
    what.over_mpi = options_.transport() == transport::mpi;
    what.capture = !options_.sinks().empty();
    if (what.capture) crew_.capture_output(options_.sinks());
    crew_.door.begin();
    what.token = crew_.door.token();
    if (options_.serve_calls()) crew_.run_calls_here({});  // a worker may call before this is over
    what.addresses = listen_to_all(what);
    std::exception_ptr failed;
    try {
      auto gathering = gather_workers(world, what, limit);  // named: g++ 12, an aggregate
      co_await std::move(gathering);
      const adopted_communicators made = co_await make_communicators(world);
      co_await asio::this_coro::throw_if_cancelled(true);  // see gather_workers
      crew_.run_calls_here({0, {}, made.everyone, {}});
      crew_.stalls.begin(crew_.here, made.control);
      if (what.over_mpi) {
        crew_.transport = std::make_shared<mpi_transport>(made.control, options_.max_message());
        for (int rank = first(); rank < first() + size(); ++rank) {
          workers().join(crew_.transport->to(rank))->over_tcp = false;
        }
        crew_.transport->start(nullptr);
      }
      co_await crew_.door.wait(limit);
    } catch (...) {
      failed = std::current_exception();
    }
    if (workers().has_begun() && !failed) {
      workers().run(workers().keep_until_end());
      co_return;
    }
    crew_.door.close();
    if (!failed) {
      failed = std::make_exception_ptr(
          error(crew_.door.problem_code(),
                "adoption of " + std::to_string(size()) + " ranks: " + crew_.door.problem()));
    }
    if (crew_.door.problem().empty()) crew_.door.set_problem("cancelled");
    crew_.let_go("the adoption has failed: " + crew_.door.problem());
    workers().end();
    std::rethrow_exception(failed);
  }

  asio::awaitable<void> shutdown(std::chrono::nanoseconds bound,
                                 [[maybe_unused]] job_handle kept) override {
    const auto self = this->shared_from_this();
    const auto limit = from_now(bound);
    workers().closing = true;
    crew_.launching.output_bound(bound);
    crew_.door.fail(errc::closed, "shut down");  // where it is being started again
    workers().changed.notify();                  // or waits for the next attempt
    const auto restarts = [this] { return starts_again(); };
    co_await workers().changed.wait_while(restarts, limit);
    if (starts_again()) {
      const std::string text =
          "shutdown: the job was being started again, and has not ended in time";
      terminate(text);
      throw error(errc::stalled, text);
    }
    if (!workers().runs()) co_return;
    const auto calls_are_pending = [this] { return calls().pending() > 0; };
    co_await workers().changed.wait_while(calls_are_pending, limit);
    calls().give_up_all([](const std::string& call, int rank) {
      return std::make_exception_ptr(
          error(errc::closed, call + "rank " + std::to_string(rank) +
                                  " has not answered before the shutdown's deadline"));
    });
    const auto calls_are_unsettled = [this] { return crew_.stalls.watched() > 0; };
    co_await workers().changed.wait_while(calls_are_unsettled, limit);
    const bool settled = co_await settle(workers(), limit);
    const departure end =
        co_await dismiss(workers(), !settled || crew_.stalls.leaves_mpi_as_it_is(), bound, limit);
    workers().stage = job_stage::ended;
    if (!end.late.empty()) {
      std::string text = "shutdown: not done in time";
      text += workers().adopted ? ": " : " and ended by force: ";
      text += detail::rank_list(end.late);
      if (workers().adopted) {
        crew_.let_go(text);
      } else {
        terminate(text);
      }
      throw rank_error(errc::stalled, end.late, text);
    }
    const auto runs_calls = [this] { return crew_.here && !crew_.here->server().idle(); };
    co_await workers().changed.wait_while(runs_calls, end.limit);
    if (crew_.transport) {
      // A worker ends its side after its last word. What nobody receives would reach a later job,
      // so there is a little time for it in any case. For what is sent to a lost one it is used up.
      using std::chrono::milliseconds;
      const auto left = std::chrono::duration_cast<milliseconds>(end.limit - clock::now());
      const auto half = std::clamp(left / 2, milliseconds(100), milliseconds(5000));
      co_await crew_.transport->stop(half, half);
    }
    workers().changed.notify();
    crew_.ignore_signals();
    if (crew_.launching.started()) {
      workers().run(reap(bound));
    } else if (workers().output) {
      co_await workers().output->read_to_the_end(end.limit);
    }
    if (end.aside.empty()) co_return;
    throw rank_error(errc::stalled, end.aside,
                     "shutdown: " + detail::rank_list(end.aside) +
                         ": has left MPI as it is, since " + end.what_is_aside +
                         " was still stuck there, long after it had been given up");
  }

  void terminate(const std::string& why) override { crew_.terminate(why); }
  void terminate(int rank) override {
    if (workers().adopted || !crew_.launching.started() ||
        options_.on_loss() != loss_policy::proceed) {
      throw error(errc::not_supported,
                  "terminate: rank " + std::to_string(rank) +
                      ": only of a job that was launched with loss_policy::proceed; the launcher "
                      "of any other ends all ranks with it");
    }
    if (!workers().runs()) throw error(errc::manager_reused, "terminate: no launched workers");
    workers().lose(workers().at(rank), "it was ended by terminate");
  }
  void abandon() override {
    const bool lives = workers().runs() || starts_again();
    if (!lives || workers().terminating || options_.ranks() == 0) return;
    workers().closing = true;
    if (workers().runs()) workers().stage = job_stage::ended;
    if (std::uncaught_exceptions() == 0) {  // else the exception is what went wrong
      log::write(log::level::warning, "the last handle of workers was dropped without shutdown");
    }
    workers().changed.notify();  // nobody is interested in how calls end
    if (workers().adopted) return crew_.let_go("the last handle was dropped without shutdown");
    terminate("the last handle was dropped");
  }

  asio::awaitable<void> ready([[maybe_unused]] job_handle kept) override {
    const auto self = this->shared_from_this();
    while (starts_again()) co_await workers().changed.wait();
    for (const member_ptr& each : workers().ranks) {
      if (!each->is(worker_state::lost)) continue;
      throw peer_lost_error({each->rank}, "workers: " + each->label() + " is lost: " + each->cause);
    }
    if (workers().closing || workers().terminating || workers().ended()) {
      throw error(errc::closed, "workers: they have been ended");
    }
  }
  asio::awaitable<worker_event> next_event([[maybe_unused]] job_handle kept) override {
    const auto self = this->shared_from_this();
    co_return co_await workers().next_event();
  }
  [[nodiscard]] bool starts_again() const noexcept override { return workers().starts_again(); }
  void when_started_again(std::function<void()> function) override {
    crew_.launching.when_started_again(std::move(function));
  }

  void made(const std::shared_ptr<const call_of_all>& call) override { crew_.stalls.made(call); }
  void watch(std::shared_ptr<const call_of_all> call) override {
    crew_.stalls.watch(std::move(call));
  }
  [[nodiscard]] bool is_left_out(int rank, bool with_manager) const override {
    return crew_.stalls.is_left_out(rank, with_manager);
  }
  void check_can_run_here() const override {
    if (workers().adopted) return;
    throw error(errc::not_supported,
                "call_options: include_manager: the manager is a rank of adopted jobs only");
  }

  [[nodiscard]] call_client& calls() const noexcept override { return *crew_.calls; }
  [[nodiscard]] asio::io_context& context() const noexcept override { return workers().io; }
  [[nodiscard]] int size() const noexcept override { return workers().size(); }
  [[nodiscard]] int first() const noexcept override { return workers().first(); }
  [[nodiscard]] worker_state state(int rank) const override { return workers().at(rank)->state; }
  [[nodiscard]] std::string cause(int rank) const override { return workers().at(rank)->cause; }
  [[nodiscard]] std::string host(int rank) const override { return workers().at(rank)->who.host; }
  [[nodiscard]] std::int64_t pid(int rank) const override { return workers().at(rank)->who.pid; }
  [[nodiscard]] std::size_t refused() const noexcept override { return crew_.door.refused(); }

 private:
  [[nodiscard]] membership& workers() noexcept { return crew_.workers; }
  [[nodiscard]] const membership& workers() const noexcept { return crew_.workers; }

  void begin(const std::string& verb) {
    if (workers().stage != job_stage::unused) {
      throw error(errc::manager_reused, verb + ": this manager has been used before");
    }
    workers().owner = this->weak_from_this();
    workers().stage = job_stage::starting;
    validate(options_);
    if (options_.on_loss() != loss_policy::respawn) return;
    if (workers().adopted || options_.by_hand()) {
      throw error(
          errc::not_supported,
          "on_loss: respawn: this manager has not started the job, so it cannot do so again");
    }
  }

  /// Where somebody wants it; returns the addresses.
  [[nodiscard]] std::string listen_to_all(const invitation& what) {
    const bool needed = what.capture || !what.over_mpi;
    if (!needed && !crew_.beats.wanted()) return {};
    try {
      crew_.door.listen();
    } catch (const error& failed) {
      if (needed || options_.heartbeat() || failed.code() != errc::launch_failed) throw;
      crew_.beats.do_without();
      log::write(log::level::warning, std::string("no heartbeats: ") + failed.what());
      return {};
    }
    crew_.door.open();
    return crew_.door.addresses();
  }

  /// Nobody needs to wait for that.
  asio::awaitable<void> reap(std::chrono::nanoseconds bound) {
    const bool in_time = co_await crew_.launching.ends(bound);
    if (!in_time) terminate("the launcher has not ended after its ranks");
  }

  launch_options options_;
  crew crew_;
};
using manager = basic_manager<void>;

template <class Any>
asio::awaitable<workers> launch(asio::io_context& io, launch_options options) {
  const auto over = std::make_shared<manager>(io, std::move(options), false);
  workers made(over);
  co_await over->launch();
  co_return made;
}

template <class Any>
asio::awaitable<workers> adopt(communicator world, adopt_options options) {
  const auto over = std::make_shared<manager>(world.get_executor().context(),
                                              options.for_ranks(world.size() - 1), true);
  workers made(over);
  co_await over->adopt(std::move(world));
  co_return made;
}

}  // namespace cohort::cluster
