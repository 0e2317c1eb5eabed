// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file How communicators come, go and fail.

#include "gpu/nccl/support.hpp"
#include "support/caught.hpp"

#include <cohort/comm/operation.hpp>
#include <cohort/progress/deadline.hpp>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::errc;

nccl::communicator_options aborting() {
  nccl::communicator_options made;
  made.on_deadline = cohort::on_deadline::abort;
  return made;
}

/// An operation for which memory runs out at one of its steps.
class starved final : public nccl::work, public nccl::work_hooks {
 public:
  enum class at { prepare, conclude };
  starved(const nccl::communicator& on, at when) : work(&run), when_(when) {
    comm = on.state();
    verb = "starved";
    hooks = this;
  }
  bool over = false;

  void prepare(const device::stream&) override { fail_at(at::prepare); }
  device::event conclude(const device::stream& domain) override {
    fail_at(at::conclude);
    return domain.record();
  }
  std::optional<device::event> give_up(std::vector<nccl::buffer_use>&) override { return {}; }
  bool end_in_lap() override { return false; }

 private:
  static void run(operation* base, action) { static_cast<starved*>(base)->over = true; }
  void fail_at(at now) const {
    if (now == when_) throw std::bad_alloc();
  }
  at when_;
};

}  // namespace

TEST_CASE("memory that runs out inside a lap ends the operation on all ranks") {
  for (const auto when : {starved::at::prepare, starved::at::conclude}) {
    on_gpus([when](communicator world) -> asio::awaitable<void> {
      auto gpus = co_await nccl::make_communicator(world);
      starved one(gpus, when);
      gpus.state()->source.submit(one);
      CHECK(co_await soon([&] { return one.over; }));
      CHECK(one.error());
      CHECK(gpus.state()->why);
      co_await meet(world);
      auto others = co_await nccl::make_communicator(world);  // the device is as good as before
      const device::stream on;
      auto values = co_await filled(on, 10, 1.0F);
      co_await nccl::all_reduce(others, on, values, op::sum);
      const auto sums = co_await read(on, values);
      CHECK(sums == std::vector<float>(10, static_cast<float>(world.size())));
    });
  }
}

DOUBLE_TEST_CASE("one rank without a device is one error on all ranks") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const int last = world.size() - 1;
    if (world.rank() == last) fake_gpu::fail_count(cudaErrorNoDevice);
    auto failed = co_await caught<cohort::rank_error>(nccl::make_communicator(world));
    REQUIRE(failed);
    CHECK(failed->code() == errc::no_device);
    CHECK(failed->ranks() == std::vector<int>{last});
    CHECK(fake_nccl::calls("ncclCommInitRankConfig") == 0);
  });
}

DOUBLE_TEST_CASE("one device for two ranks, and other versions of NCCL, are named on all ranks") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    if (world.rank() < 2) fake_gpu::set_bus_id(0, 7);
    auto failed = co_await caught<cohort::rank_error>(nccl::make_communicator(world));
    REQUIRE(failed);
    CHECK(failed->code() == errc::wrong_device);
    CHECK(failed->ranks() == std::vector<int>{0, 1});
    fake_gpu::set_bus_id(0, 100 + world.rank());
    if (world.rank() == 1) fake_nccl::set_version(22105);
    auto other = co_await caught<cohort::mismatch_error>(nccl::make_communicator(world));
    REQUIRE(other);
    CHECK(other->field() == "NCCL version");
    CHECK(std::string(other->what()).find("rank 1 has 22105") != std::string::npos);
    fake_nccl::set_version(NCCL_VERSION_CODE);
    auto gpus = co_await nccl::make_communicator(world);
    CHECK(gpus.size() == world.size());
  });
}

DOUBLE_TEST_CASE("devices are told apart by UUID, not by host name and bus id") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    // One bus id and host name everywhere; NCCL compares hosts of its own (NCCL_HOSTID).
    fake_gpu::set_bus_id(0, 7);
    fake_nccl::set_host("container " + std::to_string(world.rank()));
    fake_gpu::set_uuid(0, 200 + world.rank());
    {
      auto gpus = co_await nccl::make_communicator(world);
      CHECK(gpus.size() == world.size());
      co_await gpus.finalize();
    }
    // And the other way round: one device under two names.
    fake_gpu::set_bus_id(0, 100 + world.rank());
    fake_gpu::set_uuid(0, world.rank() < 2 ? 200 : 200 + world.rank());
    auto failed = co_await caught<cohort::rank_error>(nccl::make_communicator(world));
    REQUIRE(failed);
    CHECK(failed->code() == errc::wrong_device);
    CHECK(failed->ranks() == std::vector<int>{0, 1});
    CHECK(std::string(failed->what()).find("UUID c8000000-") != std::string::npos);
  });
}

DOUBLE_TEST_CASE("an init that fails on one rank fails on all") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    const int last = world.size() - 1;
    if (world.rank() == last) fake_nccl::fail_next("ncclCommInitRankConfig", ncclSystemError);
    auto making = nccl::make_communicator(world);
    auto code = co_await code_of(std::move(making));
    CHECK(code == nccl::make_error(ncclSystemError));
    if (world.rank() == 0) fake_nccl::fail_next("ncclGetUniqueId", ncclInternalError);
    auto again = nccl::make_communicator(world);
    code = co_await code_of(std::move(again));
    CHECK(code == nccl::make_error(ncclInternalError));
    auto gpus = co_await nccl::make_communicator(world);
    CHECK(gpus.stands() == nccl::phase::ready);
  });
}

TEST_CASE("communicators are finalised by awaiting, and then refuse operations") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(gpus, s, v, op::sum, nccl::until::enqueued);
    co_await gpus.finalize();
    CHECK(gpus.stands() == nccl::phase::gone);
    CHECK(gpus.native() == nullptr);
    CHECK_DOUBLE(fake_nccl::live_communicators() == 0);
    auto code = co_await code_of(nccl::barrier(gpus, s));
    CHECK(code == errc::closed);
    auto got = co_await read(s, v);
    CHECK(got[0] == world.size());
  });
}

TEST_CASE("a split waits for the parent's operations and gives the ranks of a color") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    const int color = world.rank() % 2;
    nccl::communicator my_half;
    bool made = false;
    {
      held_stream held(s);
      nccl::all_reduce(gpus, s, v, op::sum, asio::detached);
      gpus.split(color, -world.rank(), [&](std::exception_ptr why, nccl::communicator split) {
        my_half = std::move(split);
        made = !why;
      });
      co_await pause(50ms);
      CHECK_FALSE(my_half);
    }
    CHECK(co_await soon([&] { return made; }));
    CHECK(my_half.size() == (world.size() + 1 - color) / 2);
    CHECK(my_half.rank() == my_half.size() - 1 - world.rank() / 2);
    auto w = co_await filled<int>(s, 10, 1);
    // Both at once: the launches of two communicators keep their order.
    for (int round = 0; round < 5; ++round) {
      nccl::all_reduce(gpus, s, v, op::max, asio::detached);
      co_await nccl::all_reduce(my_half, s, w, op::sum, nccl::until::enqueued);
    }
    auto got = co_await read(s, w);
    int expected = 1;
    for (int round = 0; round < 5; ++round) expected *= my_half.size();
    CHECK(got[0] == expected);
    auto none = co_await gpus.split(world.rank() == 0 ? -1 : 0);
    CHECK(static_cast<bool>(none) == (world.rank() != 0));
  });
}

DOUBLE_TEST_CASE("the launches of two communicators keep the order in which they were started") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    nccl::communicator_options named;
    set_name(named.config, "a");
    auto a = co_await nccl::make_communicator(world, named);
    set_name(named.config, "b");
    auto b = co_await nccl::make_communicator(world, named);
    const device::stream first;
    const device::stream second;
    auto x = co_await filled<int>(first, 10, 1);
    auto y = co_await filled<int>(second, 10, 1);
    for (int round = 0; round < 20; ++round) {
      nccl::all_reduce(a, first, x, op::max, asio::detached);
      nccl::all_reduce(b, second, y, op::max, asio::detached);
    }
    co_await nccl::barrier(b, second);
    auto order = fake_nccl::launches();
    REQUIRE(order.size() == 41);
    for (std::size_t i = 0; i < 40; ++i) CHECK(order[i] == (i % 2 == 0 ? "a" : "b"));
  });
}

TEST_CASE("an operation is not over before its data is there, and does not block the loop") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    device::pinned_vector<int> twos(10, s);  // making one may wait for the device
    held_stream held(s);                     // the producer
    write(s, twos, v, 2);
    bool over = false;
    nccl::all_reduce(gpus, s, v, op::sum, [&](std::error_code) { over = true; });
    co_await pause(20ms);
    CHECK(!over);
    co_await meet(world);  // the loop goes on
    held.let_go();
    CHECK(co_await soon([&] { return over; }));
    auto got = co_await read(s, v);
    CHECK(got[3] == 2 * world.size());
  });
}

TEST_CASE("a stream or a buffer on another device is refused by name") {
  const auto body = [](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    nccl::communicator_options on_zero;
    on_zero.device = 0;
    auto gpus = co_await nccl::make_communicator(world, on_zero);
    const device::stream here(0);
    const device::stream there(1);
    device::vector<int> v(4, here);
    device::vector<int> w(4, there);
    auto code = co_await code_of(nccl::all_reduce(gpus, there, v, op::sum));
    CHECK(code == errc::wrong_device);
    CHECK(gpus.last_failure().text.find("nccl all_reduce: stream.device=1") != std::string::npos);
    code = co_await code_of(nccl::all_reduce(gpus, here, w, op::sum));
    CHECK(code == errc::wrong_device);
    CHECK(gpus.last_failure().text.find("field=buffer, device=1") != std::string::npos);
  };
  on_gpus(body, false, 2);
}

DOUBLE_TEST_CASE(
    "an asynchronous error on one rank ends the operations of all ranks with an error") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // one rank launches nothing in place
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    auto other = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    auto w = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(gpus, s, v, op::sum);
    fake_nccl::hang_next(gpus.native());
    co_await meet(world);
    std::error_code first;
    std::error_code second;
    int ended = 0;
    nccl::all_reduce(gpus, s, v, op::sum, [&](std::error_code code) {
      first = code;
      ++ended;
    });
    nccl::all_reduce(other, s, w, op::sum, [&](std::error_code code) {
      second = code;
      ++ended;
    });
    CHECK(co_await soon([&] { return on_the_device(gpus); }));  // the other's is queued behind it
    CHECK(ended == 0);
    co_await meet(world);
    if (world.rank() == 0) fake_nccl::set_async_error(gpus.native(), ncclSystemError);
    CHECK(co_await soon([&] { return ended == 2; }));
    const auto mine = nccl::make_error(world.rank() == 0 ? ncclSystemError : ncclRemoteError);
    CHECK(first == mine);
    // On the other ranks whichever message comes first names it.
    CHECK(second.category() == nccl::nccl_category());
    const std::string report = gpus.last_failure().text;
    INFO(report);
    // From rank 2 on it may have heard of the other communicator first.
    if (world.rank() < 2 || report.find("ended with another communicator") == report.npos) {
      CHECK(report.find("nccl all_reduce #2, bytes=40, device=0, on the device") != report.npos);
      CHECK(report.find("started last: all_reduce #1 of 40 bytes, all_reduce #2 of") !=
            report.npos);
      CHECK(report.find("what is queued behind them, is undefined") != report.npos);
    }
    if (world.rank() == 0) CHECK_DOUBLE(report.find("; NCCL: ") != report.npos);
    auto after = co_await code_of(nccl::barrier(gpus, s));
    CHECK(after == mine);
    CHECK(co_await soon([&] { return fake_nccl::live_communicators() == 0; }));
    co_await meet(world);

    // The ranks recover with new communicators.
    auto again = co_await world.dup();
    auto fresh = co_await nccl::make_communicator(again);
    auto u = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(fresh, s, u, op::sum);
    auto got = co_await read(s, u);
    CHECK(got[0] == world.size());
  });
}

DOUBLE_TEST_CASE("a deadline over a hanging collective aborts where that is asked for") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // one rank launches nothing in place
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world, aborting());
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    fake_nccl::hang_next(gpus.native());
    co_await meet(world);
    auto op = nccl::all_reduce(gpus, s, v, op::sum);
    std::error_code code;
    if (world.rank() == 0) {
      auto bounded = cohort::with_deadline(std::move(op), 50ms);
      code = co_await code_of(std::move(bounded));
      CHECK(code == errc::deadline_exceeded);
    } else {
      code = co_await code_of(std::move(op));
      CHECK(code == nccl::make_error(ncclRemoteError));
    }
    CHECK(log.contains("all_reduce #1"));
    // Who is told while it starts may be refused before its abort is over.
    if (world.rank() == 0) CHECK(gpus.stands() == nccl::phase::gone);
    CHECK(co_await soon([&] { return gpus.stands() == nccl::phase::gone; }));
    co_await meet(world);
  });
}

TEST_CASE("a deadline over a hanging collective is reported where no abort is asked for") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    held_stream held(s);
    bool over = false;
    std::error_code code;
    auto run_it = [&]() -> asio::awaitable<void> {
      auto op = nccl::all_reduce(gpus, s, v, op::sum);
      auto bounded = cohort::with_deadline(std::move(op), 20ms);
      code = co_await code_of(std::move(bounded));
      over = true;
    };
    asio::co_spawn(world.get_executor(), run_it, asio::detached);
    CHECK(co_await soon([&] { return log.contains("NCCL cannot give it up"); }));
    CHECK(!over);
    held.let_go();
    CHECK(co_await soon([&] { return over; }));
    auto got = co_await read(s, v);
    CHECK(got[0] == world.size());
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("an operation that takes long is named once, with its age and where it stands") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    setenv("COHORT_STALL_WARNING", "1ms", 1);  // for this source alone
    auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
    unsetenv("COHORT_STALL_WARNING");
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    auto w = co_await filled<int>(s, 5, 1);
    device::vector<int> out(5, s);
    fake_gpu::hold(s.get());
    const cohort::log::capture log;
    int ended = 0;
    const auto count = [&](std::error_code error) {
      CHECK(!error);
      ++ended;
    };
    nccl::all_reduce(gpus, s, v, op::sum, count);
    co_await nccl::barrier(gpus, s, nccl::until::enqueued);  // so the first one is on the device
    fake_nccl::hold_launches(true);
    nccl::all_reduce(gpus, s, w, out, op::sum, count);
    nccl::all_reduce(gpus, s, w, out, op::max, count);
    const auto line = [&](int which, int bytes, const std::string& stands) {
      return "rank " + std::to_string(world.rank()) + ": nccl all_reduce #" +
             std::to_string(which) + ", bytes=" + std::to_string(bytes) + ", device=0, " + stands;
    };
    const bool alone = world.size() == 1;  // then no call stays in progress
    const std::string last = line(4, 20, alone ? "on the device, for " : "queued, for ");
    CHECK(co_await soon([&] { return log.contains(last); }));
    CHECK(log.contains("stalled:"));
    CHECK(log.contains(line(1, 40, "")));
    CHECK(log.contains(line(3, 20, "")));
    std::string all;
    source.describe(all);
    CHECK(all.find(line(1, 40, "on the device, for ")) != std::string::npos);
    const char* const third = alone ? "on the device, for " : "being launched, for ";
    CHECK(all.find(line(3, 20, third)) != std::string::npos);
    CHECK(all.find(last) != std::string::npos);
    // Each is asked about once, too.
    CHECK(co_await soon(
        [&] { return source.exclusively([&] { return !gpus.state()->asked.has_value(); }); }));
    const auto once = log.text();
    co_await pause(120ms);  // at least one more tick
    CHECK(log.text() == once);
    fake_nccl::hold_launches(false);
    fake_gpu::release(s.get());
    CHECK(co_await soon([&] { return ended == 3; }));
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("an abort by the program ends what is in flight, here and at the peers") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;  // one rank launches nothing in place
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    fake_nccl::hang_next(gpus.native());
    co_await meet(world);
    outcome end;
    nccl::all_reduce(gpus, s, v, op::sum, end.handler());
    co_await pause(5ms);
    if (world.rank() == world.size() - 1) co_await gpus.abort();
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(end.code == (world.rank() == world.size() - 1 ? make_error_code(errc::aborted)
                                                        : nccl::make_error(ncclRemoteError)));
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("a sticky error ends everything of the device, and the peers are told") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;  // one rank launches nothing in place
        const cohort::log::capture log;
        auto gpus = co_await nccl::make_communicator(world);
        const device::stream s;
        auto v = co_await filled<int>(s, 10, 1);
        co_await nccl::all_reduce(gpus, s, v, op::sum);
        fake_nccl::hang_next(gpus.native());
        co_await meet(world);
        outcome end;
        nccl::all_reduce(gpus, s, v, op::sum, end.handler());
        CHECK(co_await soon([&] { return on_the_device(gpus); }));
        co_await meet(world);
        if (world.rank() == 0) fake_gpu::break_device(0, cudaErrorIllegalAddress);
        CHECK(co_await soon([&] { return end.over; }));
        if (world.rank() == 0) {
          CHECK(end.code == device::make_error(cudaErrorIllegalAddress));
          CHECK(fake_nccl::calls("ncclCommAbort") == 0);
        } else {
          CHECK(end.code == nccl::make_error(ncclRemoteError));
        }
        const std::string report = gpus.last_failure().text;
        INFO(report);
        CHECK(report.find("nccl all_reduce #2, bytes=40, device=0, on the device") != report.npos);
        CHECK(report.find("started last: all_reduce #1 of 40 bytes, all_reduce #2 of") !=
              report.npos);
        CHECK(report.find("what is queued behind them, is undefined") != report.npos);
        co_await meet(world);
      },
      true);
}

DOUBLE_TEST_CASE("a call that NCCL refuses ends the operation and its communicators") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    if (world.rank() == 0) fake_nccl::fail_next("ncclAllReduce", ncclInternalError);
    auto code = co_await code_of(nccl::all_reduce(gpus, s, v, op::sum));
    CHECK(code == nccl::make_error(world.rank() == 0 ? ncclInternalError : ncclRemoteError));
    co_await meet(world);
  });
}

TEST_CASE("a borrowed communicator stays its owner's") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto making = own_communicator(world);
    const ncclComm_t theirs = co_await std::move(making);
    {
      auto gpus = co_await nccl::borrow_communicator(world, theirs);
      const device::stream s;
      auto v = co_await filled<int>(s, 10, 1);
      co_await nccl::all_reduce(gpus, s, v, op::sum);
      auto got = co_await read(s, v);
      CHECK(got[0] == world.size());
      co_await gpus.finalize();
    }
    CHECK_DOUBLE(fake_nccl::calls("ncclCommFinalize") == 0);
    CHECK_DOUBLE(fake_nccl::live_communicators() == 1);
    CHECK(ncclCommDestroy(theirs) == ncclSuccess);
  });
}

TEST_CASE("a context may end with communicators and operations in flight") {
  in_ended_context([](communicator world, asio::io_context& io) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    nccl::all_reduce(gpus, s, v, op::sum, asio::detached);
    co_await meet(world);
    io.stop();
    co_await pause(1h);
  });
}

DOUBLE_TEST_CASE(
    "an asynchronous error of a rank that has started nothing ends what its peers wait for") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    co_await nccl::all_reduce(gpus, s, v, op::sum);
    const auto comms = fake_nccl::communicators_of(world.size());
    REQUIRE(comms.size() == 1);
    co_await meet(world);
    if (world.rank() == 1) fake_nccl::set_async_error(comms.front(), ncclSystemError);
    if (world.rank() == 0) {  // the others do not start it
      outcome end;
      nccl::all_reduce(gpus, s, v, op::sum, end.handler());
      CHECK(co_await soon([&] { return end.over; }));
      CHECK(end.code == nccl::make_error(ncclRemoteError));
    }
    co_await meet(world);
  });
}

DOUBLE_TEST_CASE("a communicator that cannot end in time is leaked and named") {
  on_gpus(
      [](communicator world) -> asio::awaitable<void> {
        if (world.size() < 2) co_return;
        const cohort::log::capture log;
        nccl::communicator_options options;
        options.leave_bound = 100ms;
        auto gpus = co_await nccl::make_communicator(world, options);
        if (world.rank() == 0) {  // the others do not leave
          auto code = co_await code_of(gpus.finalize());
          CHECK(code == errc::stalled);
          CHECK(gpus.stands() == nccl::phase::leaked);
          CHECK(log.contains("has not ended in time and is leaked"));
          const auto frees = fake_gpu::calls("cudaFreeAsync");
          {
            const device::vector<int> dropped(10);
          }
          CHECK(fake_gpu::calls("cudaFreeAsync") == frees);  // they might block at exit
        }
        co_await meet(world);
        // Rank 0 is told, but not in the next communicator to which MPI gives the same number.
        if (world.rank() != 0) co_await gpus.abort();
        gpus = {};
        co_await meet(world);
        auto alone = co_await world.split(world.rank());
        co_await meet(alone);
      },
      true);
}

TEST_CASE("a device belongs to one context") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    co_await nccl::barrier(gpus, s);
    asio::io_context other;
    nccl::issue_source& second = asio::use_service<nccl::issue_source>(other);
    CHECK(gpus.state()->source.engine().get_executor() == world.get_executor());
    std::error_code code;
    try {
      second.claim(gpus.device());
    } catch (const std::system_error& failed) {
      code = failed.code();
    }
    CHECK(code == errc::single_thread_violation);
  });
}

TEST_CASE("codes of NCCL keep their category and text") {
  const std::error_code code = nccl::make_error(ncclSystemError);
  CHECK(std::string(code.category().name()) == "nccl");
  CHECK(cohort::category_named("nccl") == nccl::nccl_category());
  CHECK(code.message() == ncclGetErrorString(ncclSystemError));
}
