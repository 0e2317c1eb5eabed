// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file What a tool sees through NVTX: names, bytes and order of ranges, and that each of them
/// ends, whatever becomes of its operation.

#include "support.hpp"
#include "support/fake_gpu/nvtx_control.hpp"

#include <cohort/device/staged_copy.hpp>
#include <cohort/progress/deadline.hpp>

using namespace cohort_test;

namespace {

/// A tool is there while this lives. Whoever makes it before the machine sees all ends.
class a_tool {
 public:
  a_tool() { fake_nvtx::attach(true); }
  ~a_tool() {
    for (const std::string& fault : fake_nvtx::faults()) UNSCOPED_INFO(fault);
    CHECK(fake_nvtx::faults().empty());
    for (const std::string& one : fake_nvtx::open()) UNSCOPED_INFO(one << " has not ended");
    CHECK(fake_nvtx::open().empty());
    fake_nvtx::attach(false);
  }
  a_tool(const a_tool&) = delete;
};

inline std::vector<fake_nvtx::range> ranges_of(std::string_view category, std::string_view name) {
  std::vector<fake_nvtx::range> found;
  for (fake_nvtx::range& one : fake_nvtx::ranges()) {
    if (one.category == category && one.name == name) found.push_back(std::move(one));
  }
  return found;
}

/// The only one of that name.
inline fake_nvtx::range the_range(std::string_view category, std::string_view name) {
  const auto found = ranges_of(category, name);
  INFO(category << " '" << name << "'");
  REQUIRE(found.size() == 1);
  return found.front();
}

/// Every range of these operations has ended, and each has been negotiated or run.
inline void check_all_ended(std::string_view prefix, std::size_t operations) {
  std::size_t negotiated = 0;
  for (const fake_nvtx::range& one : fake_nvtx::ranges()) {
    if (one.name.rfind(prefix, 0) != 0) continue;
    INFO(one.category << " '" << one.name << "'");
    CHECK(one.ended > one.began);
    if (one.category == "negotiate") ++negotiated;
  }
  CHECK(negotiated == operations);
}

}  // namespace

DOUBLE_TEST_CASE("a tool sees each verb on a device from its initiation to its completion") {
  const a_tool tool;
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream on;
    auto values = co_await filled(on, 100, 1.0F);
    auto other = co_await filled(on, 50, 1.0F);
    const device::stream late;
    fake_gpu::hold(late.get());
    on.wait(late.record());
    auto first = nccl::all_reduce(gpus, on, values, op::sum, cohort::as_future);
    auto second = nccl::broadcast(gpus, on, other, 0, cohort::as_future);
    co_await pause(5ms);
    CHECK(the_range("verb", "all_reduce").ended == 0);
    CHECK(the_range("verb", "broadcast").ended == 0);
    fake_gpu::release(late.get());
    co_await std::move(first);
    co_await std::move(second);
    const auto sum = the_range("verb", "all_reduce");
    const auto copy = the_range("verb", "broadcast");
    CHECK(sum.bytes == 400);
    CHECK(copy.bytes == 200);
    CHECK(sum.registered);
    CHECK(sum.began < copy.began);
    CHECK(copy.began < sum.ended);  // they overlap, and need not nest
    CHECK(sum.ended < copy.ended);

    auto from_left = co_await filled(on, 50, 0.0F);
    co_await nccl::group(gpus, on)
        .send(other, right_of(world))
        .recv(from_left, left_of(world))
        .run();
    CHECK(the_range("verb", "group").bytes == 400);
    CHECK(the_range("verb", "group").ended != 0);
    // What is refused ends too; and strings are registered once.
    const std::size_t known = fake_nvtx::registered();
    ending refused;
    nccl::broadcast(gpus, on, other, world.size(),
                    [&](std::error_code why) { refused.over = static_cast<bool>(why); });
    CHECK(co_await soon([&] { return refused.over; }));
    CHECK(ranges_of("verb", "broadcast").size() == 2);
    CHECK(fake_nvtx::registered() == known);
  });
}

DOUBLE_TEST_CASE("a tool sees how communicators are made, split, finalised and aborted") {
  const a_tool tool;
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    CHECK(the_range("communicator", "make_communicator").ended != 0);
    {
      auto part = co_await gpus.split(0);
      const auto split = the_range("communicator", "split");
      const auto made = ranges_of("communicator", "make_communicator");
      REQUIRE(made.size() == 2);
      CHECK(split.began < made[1].began);
      CHECK(made[1].ended < split.ended);
      co_await part.finalize();
      const auto over = the_range("communicator", "finalize");
      const auto gone = the_range("communicator", "destroy");
      CHECK(over.ended != 0);
      CHECK(over.began < gone.began);
    }
    co_await meet(world);
    if (world.rank() == 0) co_await gpus.abort();
    CHECK(co_await soon([] { return fake_nccl::live_communicators() == 0; }));
    CHECK(co_await soon([] { return the_range("communicator", "abort").ended != 0; }));
  });
}

DOUBLE_TEST_CASE("a tool sees a named operation from its submission over its election to its end") {
  const a_tool tool;
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    const device::stream on;
    std::vector<device::vector<float>> values;
    for (int i = 0; i < 4; ++i) values.push_back(co_await filled(on, 16, 1.0F));
    cohort::bundle together("gradients \xC3\xA4");
    for (std::size_t i = 0; i < 4; ++i) together.add(std::to_string(i), values[i]);
    co_await coord.grouped_all_reduce(together, op::sum);

    const auto submitted = the_range("negotiate", "gradients \xC3\xA4");
    const auto elected = the_range("operation", "gradients \xC3\xA4");
    const auto moved = ranges_of("data", "all_reduce");
    REQUIRE(moved.size() == 1);
    CHECK_FALSE(submitted.registered);  // there may be many of them
    CHECK(moved.front().registered);
    CHECK(elected.bytes == 4 * 64);
    CHECK(moved.front().bytes == 4 * 64);
    CHECK(submitted.ended < elected.began);
    CHECK(elected.began < moved.front().began);  // launched
    CHECK(moved.front().ended < elected.ended);
    const auto packed = the_range("pack", "pack");
    const auto unpacked = the_range("unpack", "unpack");
    CHECK(packed.bytes == 4 * 64);
    CHECK(moved.front().began < packed.began);
    CHECK(packed.ended < unpacked.began);
    CHECK(unpacked.ended < moved.front().ended);

    std::vector<double> host(10, 1.0);
    co_await coord.all_reduce("on the host", host, op::sum);
    CHECK(the_range("negotiate", "on the host").bytes == 80);
    CHECK(the_range("operation", "on the host").ended != 0);
    coord.step();
    const auto moments = fake_nvtx::moments();
    REQUIRE(moments.size() == 1);
    CHECK(moments.front().name == "step");
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a tool sees the beginning of a long name, in whole characters") {
  const a_tool tool;
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    std::string name = "x";
    while (name.size() < 600) name += "\xC3\xA4";
    std::vector<double> host(1, 1.0);
    co_await coord.all_reduce(name, host, op::sum);
    const auto found = the_range("operation", name.substr(0, 255));
    CHECK(found.ended != 0);
    name.insert(0, "x");
    co_await coord.all_reduce(name, host, op::sum);
    CHECK(the_range("operation", name.substr(0, 254)).ended != 0);
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a tool sees staged copies, also those that are given up or refused") {
  const a_tool tool;
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.rank() != 0) co_return;
    const device::stream on;
    device::vector<float> values(1000, on);
    std::vector<float> host(1000, 1.0F);
    auto there = device::staged_copy(on, host, values);
    co_await std::move(there);
    CHECK(the_range("copy", "staged_copy").bytes == 4000);
    CHECK(the_range("copy", "staged_copy").ended != 0);
    fake_gpu::hold(on.get());
    const auto give_up = [&]() -> asio::awaitable<void> {
      auto held = device::staged_copy(on, values, host);
      co_await cohort::with_deadline(std::move(held), 5ms);
    };
    auto given_up = code_of(give_up());
    const std::error_code late = co_await std::move(given_up);
    CHECK(late == cohort::errc::deadline_exceeded);
    fake_gpu::release(on.get());
    device::staged_copy_options nothing;
    nothing.piece = 0;
    auto refused = code_of(device::staged_copy(on, values, host, nothing));
    const std::error_code wrong = co_await std::move(refused);
    CHECK(wrong == cohort::errc::invalid_argument);
    CHECK(ranges_of("copy", "staged_copy").size() == 3);
    CHECK(fake_nvtx::open().size() <= 1);  // a communicator of the layer may be there
    auto over = device::done(on);
    co_await std::move(over);
  });
}

DOUBLE_TEST_CASE("ranges end with operations that are cancelled, or whose handles are dropped") {
  const a_tool tool;
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const device::stream on;
    auto values = co_await filled(on, 10, 1.0F);
    ending end;
    {
      auto coord = co_await opened(world);
      if (world.rank() == 0 && world.size() > 1) {
        auto early = coord.all_reduce("early", values, op::sum, cohort::as_future);
        early.cancel();
        auto code = co_await code_of(static_cast<asio::awaitable<void>&&>(std::move(early)));
        CHECK(code == asio::error::operation_aborted);
        CHECK(the_range("negotiate", "early").ended != 0);
        CHECK(ranges_of("operation", "early").empty());
      }
      co_await meet(world);
      coord.all_reduce("dropped", values, op::sum, end.handler());
    }
    CHECK(co_await soon([&] { return end.over; }));
    CHECK(the_range("operation", "dropped").ended != 0);
  });
}

DOUBLE_TEST_CASE("ranges end with operations that fail on a device") {
  const a_tool tool;
  for (const bool sticky : {false, true}) {
    on_gpus(
        [sticky](cohort::communicator world) -> asio::awaitable<void> {
          if (world.size() < 2) co_return;  // nothing hangs there
          const cohort::log::capture log;
          const std::string prefix = sticky ? "sticky " : "broken ";
          cohort::coordinator coord(world, nccl::backend());
          co_await sums(coord, prefix + "before");
          const device::stream on;
          std::vector<device::vector<float>> values;
          for (int i = 0; i < 6; ++i) values.push_back(co_await filled(on, 16, 1.0F));
          const ncclComm_t comm = native(world);
          co_await hangs_next(world, comm);
          std::deque<ending> ends;
          for (std::size_t i = 0; i < values.size(); ++i) {
            coord.all_reduce(prefix + std::to_string(i), values[i], op::sum,
                             ends.emplace_back().handler());
          }
          co_await fails_on_rank_0(world, comm, sticky);
          CHECK(co_await soon([&] { return all_over(ends); }));
          for (const ending& one : ends) CHECK(one.is_data_error());
          check_all_ended(prefix, 1 + ends.size());
          co_await coord.shutdown();
        },
        sticky);
  }
}

DOUBLE_TEST_CASE("ranges end with a context that ends while verbs are in flight") {
  const a_tool tool;
  const gpus_of_ranks machine;
  {
    asio::io_context io;
    cohort::communicator world(io);
    const cohort::log::capture log;
    run(io, [](cohort::communicator over) -> asio::awaitable<void> {
      auto gpus = co_await nccl::make_communicator(over);
      const device::stream on;
      auto values = co_await filled(on, 10, 1.0F);
      auto dropped = nccl::all_reduce(gpus, on, values, op::sum, cohort::as_future);
      static_cast<void>(dropped);
      co_await meet(over);
    }(world));
  }
  CHECK(the_range("verb", "all_reduce").ended != 0);
}
