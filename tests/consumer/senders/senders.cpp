// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// A user's program with senders: any verb is one, given a completion token that makes senders. With
// WITH_STDEXEC that token and all the rest are stdexec's, else those of the stand-in beside it.
#include <cohort/cohort.hpp>

#ifdef WITH_STDEXEC
#include <exec/asio/use_sender.hpp>
#include <exec/static_thread_pool.hpp>
#include <stdexec/execution.hpp>
namespace ex = stdexec;
using exec::static_thread_pool;
using exec::asio::use_sender;
#else
#include "algorithms.hpp"
#include "protocol.hpp"
namespace ex = stand_in;
using stand_in::static_thread_pool;
using stand_in::use_sender;
#endif

#include <condition_variable>
#include <cstdio>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

int failures = 0;

#define EXPECT(...) expect((__VA_ARGS__), #__VA_ARGS__, __LINE__)
void expect(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "senders.cpp:%d: not so: %s\n", line, what);
  ++failures;
}

/// The code of what `sync_wait` throws, or none.
template <class Sender>
std::error_code code_of(Sender sender) {
  try {
    ex::sync_wait(std::move(sender));
  } catch (const std::system_error& failed) {
    return failed.code();
  }
  return {};
}

// ---- a receiver --------------------------------------------------------------------------------

enum class ended_with { value, error, stopped };

/// How an operation has ended, how often, and on which thread.
class ending {
 public:
  void set(ended_with how) {
    const std::lock_guard hold(mutex_);
    ++times_;
    how_ = how;
    where_ = std::this_thread::get_id();
    changed_.notify_all();
  }
  ended_with wait() {
    std::unique_lock hold(mutex_);
    changed_.wait(hold, [this] { return times_ != 0; });
    return how_;
  }
  [[nodiscard]] int times() const {
    const std::lock_guard hold(mutex_);
    return times_;
  }
  [[nodiscard]] std::thread::id where() const { return where_; }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int times_ = 0;
  ended_with how_ = ended_with::error;
  std::thread::id where_;
};

struct env {
  ex::inplace_stop_token token;
  [[nodiscard]] ex::inplace_stop_token query(ex::get_stop_token_t) const noexcept { return token; }
};

/// Destroys the operation state, which is its own, before it tells how it has ended.
struct receiver {
  using receiver_concept = ex::receiver_tag;
  std::shared_ptr<void>* state;
  ending* to;
  ex::inplace_stop_token token;

  void end(ended_with how) noexcept {
    ending* const tells = to;
    state->reset();
    tells->set(how);
  }
  template <class... Values>
  void set_value(Values&&...) && noexcept {
    end(ended_with::value);
  }
  void set_error(std::exception_ptr) && noexcept { end(ended_with::error); }
  void set_stopped() && noexcept { end(ended_with::stopped); }
  [[nodiscard]] env get_env() const noexcept { return {token}; }
};

/// An operation with that receiver.
template <class Sender>
class run_alone {
 public:
  explicit run_alone(Sender sender, ex::inplace_stop_token token = {}) {
    auto made = std::make_shared<held>(std::move(sender), receiver{&state_, &end, token});
    operation_ = made.get();
    state_ = std::move(made);
  }
  void start() { ex::start(operation_->state); }
  ending end;

 private:
  struct held {
    held(Sender sender, receiver to) : state(ex::connect(std::move(sender), std::move(to))) {}
    decltype(ex::connect(std::declval<Sender>(), std::declval<receiver>())) state;
  };
  std::shared_ptr<void> state_;
  held* operation_ = nullptr;
};

// ---- what is shown -----------------------------------------------------------------------------

struct program {
  cohort::progress_thread thread;  // runs the loop, as this thread waits
  cohort::communicator world{thread.context()};
  static_thread_pool pool{2};
  const int rank = world.rank();
  const int size = world.size();
  const int right = (rank + 1) % size;
  const int left = (rank + size - 1) % size;
  const int sum_of_ranks = size * (size - 1) / 2;
  const std::thread::id loop_thread =
      asio::post(thread.context(), asio::use_future([] { return std::this_thread::get_id(); }))
          .get();

  /// Without arguments for the barrier, so that parts begin together.
  void meet() { ex::sync_wait(cohort::barrier(world, use_sender)); }

  void values() {
    int sum = rank;
    EXPECT(ex::sync_wait(cohort::all_reduce(world, sum, cohort::op::sum, use_sender)).has_value());
    EXPECT(sum == sum_of_ranks);

    // A container that was moved in comes back.
    auto owned = ex::sync_wait(
        cohort::all_reduce(world, std::vector<int>(10, 1), cohort::op::sum, use_sender));
    EXPECT(std::get<0>(owned.value()) == std::vector<int>(10, size));

    // A sender that is not started has done nothing: others may use the communicator as if it were
    // not there.
    int untouched = 5;
    [[maybe_unused]] auto never = cohort::all_reduce(world, untouched, cohort::op::sum, use_sender);
    meet();
    EXPECT(untouched == 5);
  }

  void several() {
    int sum = rank;
    int largest = rank;
    int from_left = -1;
    const auto all = ex::sync_wait(
        ex::when_all(cohort::all_reduce(world, sum, cohort::op::sum, use_sender),
                     cohort::recv(world, from_left, left, 1, use_sender),
                     cohort::send(world, rank, right, 1, use_sender),
                     cohort::all_reduce(world, largest, cohort::op::max, use_sender)));
    EXPECT(all.has_value());
    EXPECT(std::get<0>(*all).source() == left);  // the status of the receive: the only value
    EXPECT(sum == sum_of_ranks);
    EXPECT(largest == size - 1);
    EXPECT(from_left == left);
  }

  void threads() {
    const auto here = [] { return std::this_thread::get_id(); };
    const auto at_end = ex::sync_wait(ex::then(cohort::barrier(world, use_sender), here)).value();
    EXPECT(std::get<0>(at_end) == loop_thread);

    // On the pool, then a verb, whose completion is on the loop's thread, then on the pool again.
    std::vector<double> part;
    double sum = 0;
    std::thread::id first;
    std::thread::id second;
    auto compute = ex::then(ex::just(), [&] {
      first = here();
      part.assign(1000, rank + 1.0);
      sum = std::accumulate(part.begin(), part.end(), 0.0);
    });
    auto reduce = ex::let_value(std::move(compute), [&] {
      return cohort::all_reduce(world, sum, cohort::op::sum, use_sender);
    });
    auto work =
        ex::then(ex::continues_on(ex::then(ex::starts_on(pool.get_scheduler(), std::move(reduce)),
                                           [&] { second = here(); }),
                                  pool.get_scheduler()),
                 here);
    const std::thread::id third = std::get<0>(ex::sync_wait(std::move(work)).value());
    EXPECT(sum == 1000.0 * size * (size + 1) / 2);
    EXPECT(second == loop_thread);
    for (const std::thread::id on_pool : {first, third}) {
      EXPECT(on_pool != loop_thread && on_pool != here());
    }
#ifdef WITH_STDEXEC
    // `on` comes back: to where it has begun, or to where the verb has ended.
    const auto back = ex::sync_wait(ex::on(pool.get_scheduler(), ex::then(ex::just(), here)) |
                                    ex::then([&](std::thread::id there) {
                                      EXPECT(there != loop_thread && there != here());
                                      return here();
                                    }));
    EXPECT(std::get<0>(back.value()) == here());
#endif
  }

  void errors() {
    int value = 0;
    const std::error_code bad = code_of(cohort::send(world, value, size + 7, 0, use_sender));
    EXPECT(bad == cohort::errc::bad_rank);

    // The receive would never end: `when_all` asks it to stop.
    const std::error_code first =
        code_of(ex::when_all(cohort::recv(world, value, left, 2, use_sender),
                             cohort::send(world, value, size + 7, 0, use_sender)));
    EXPECT(first == cohort::errc::bad_rank);

    const cohort::communicator nowhere;
    EXPECT(code_of(cohort::barrier(nowhere, use_sender)) == cohort::errc::invalid_communicator);
  }

  void stops() {
    int value = 0;
    {  // Stopped while it waits.
      ex::inplace_stop_source stop;
      run_alone pending(cohort::recv(world, value, left, 3, use_sender), stop.get_token());
      pending.start();
      meet();  // it has been posted
      EXPECT(pending.end.times() == 0);
      stop.request_stop();
      EXPECT(pending.end.wait() == ended_with::stopped);
      EXPECT(pending.end.where() == loop_thread);
      EXPECT(pending.end.times() == 1);
    }
    {  // Stopped before it starts.
      ex::inplace_stop_source stop;
      stop.request_stop();
      run_alone pending(cohort::recv(world, value, left, 3, use_sender), stop.get_token());
      pending.start();
      EXPECT(pending.end.wait() == ended_with::stopped);
    }
    {  // Stopped on the thread of the loop.
      ex::inplace_stop_source stop;
      run_alone pending(cohort::recv(world, value, left, 3, use_sender), stop.get_token());
      pending.start();
      asio::post(thread.context(), [&] { stop.request_stop(); });
      EXPECT(pending.end.wait() == ended_with::stopped);
    }
    {  // MPI works on a borrowed buffer: a collective goes on, and the others do not hang.
      ex::inplace_stop_source stop;
      int sum = rank;
      run_alone going(cohort::all_reduce(world, sum, cohort::op::sum, use_sender),
                      stop.get_token());
      going.start();
      stop.request_stop();
      EXPECT(going.end.wait() == ended_with::value);
      EXPECT(sum == sum_of_ranks);
    }
    {  // Nothing is borrowed: it goes on without the sender.
      ex::inplace_stop_source stop;
      run_alone left_alone(cohort::barrier(world, use_sender), stop.get_token());
      left_alone.start();
      stop.request_stop();
      left_alone.end.wait();
      EXPECT(left_alone.end.times() == 1);
    }
    meet();
  }

  /// A message and a request to stop meet: it ends once, and the message is not lost.
  void races() {
    for (int i = 0; i < 300; ++i) {
      int got = -1;
      ex::inplace_stop_source stop;
      run_alone pending(cohort::recv(world, got, left, 4, use_sender), stop.get_token());
      pending.start();
      run_alone sent(cohort::send(world, i, right, 4, use_sender));
      sent.start();
      stop.request_stop();
      const ended_with how = pending.end.wait();
      if (how == ended_with::stopped) {
        ex::sync_wait(cohort::recv(world, got, left, 4, use_sender));
      } else {
        EXPECT(how == ended_with::value);
      }
      EXPECT(got == i);
      EXPECT(pending.end.times() == 1);
      EXPECT(sent.end.wait() == ended_with::value);
    }
  }
};

/// Without a thread of its own, whoever runs the loop is where senders end.
void loop_of_this_thread() {
  asio::io_context io;
  const cohort::communicator world(io);
  int sum = 1;
  run_alone alone(cohort::all_reduce(world, sum, cohort::op::sum, use_sender));
  alone.start();
  EXPECT(alone.end.times() == 0);
  io.run();  // until it has ended: it is work of the loop
  EXPECT(alone.end.times() == 1);
  EXPECT(alone.end.wait() == ended_with::value);
  EXPECT(alone.end.where() == std::this_thread::get_id());
  EXPECT(sum == world.size());
}

/// The loop goes while a receive is pending: it is told that it has stopped.
void loop_that_goes() {
  int value = 0;
  std::optional<asio::io_context> io(std::in_place);
  cohort::communicator world(*io);
  run_alone pending(cohort::recv(world, value, 0, 5, use_sender));
  pending.start();
  io->poll();
  EXPECT(pending.end.times() == 0);
  world = cohort::communicator();
  io.reset();
  EXPECT(pending.end.times() == 1);
  EXPECT(pending.end.wait() == ended_with::stopped);
}

}  // namespace

int main(int argc, char** argv) {
  cohort::environment env{argc, argv};
  {
    program all;
    all.values();
    all.several();
    all.threads();
    all.errors();
    all.stops();
    all.races();
  }
  loop_of_this_thread();
  loop_that_goes();
  return failures == 0 ? 0 : 1;
}
