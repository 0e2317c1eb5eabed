// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file The end of a context while something is being opened on devices, or works there: of all
/// ranks, and of one while the others go on.

#include "early_ends.hpp"
#include "support.hpp"

#include <functional>
#include <thread>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;

/// A machine where in the end nothing is left of NCCL, and its rules were kept.
class emptied_gpus {
 public:
  ~emptied_gpus() {
    CHECK_DOUBLE(fake_nccl::faults().empty());
    CHECK_DOUBLE(fake_nccl::live_communicators() == 0);
  }

 private:
  gpus_of_ranks machine_;
};

nccl::backend_options over_nodes_if(bool hierarchical, const communicator& world) {
  return hierarchical ? over_nodes(world, 2) : nccl::backend_options();
}

/// An operation on a device, which outlives the context of its coordinator.
struct lasting_operation {
  const clocked bound;
  const cohort::log::capture log;
  const device::stream on;
  device::vector<float> values{10, on};
  ending end;

  void start(const coordinator& coord) { coord.all_reduce("it", values, op::sum, end.handler()); }
  /// On a rank that goes on it ends well, or in words if a rank has gone meanwhile.
  void check_end(asio::io_context& io) {
    CHECK(run_until(io, [&] { return end.over; }));
    INFO(end.text());
    CHECK((end.well() || end.is_data_error() || end.code() == errc::peer_lost ||
           end.code() == errc::not_accepting));
  }
};

}  // namespace

TEST_CASE("a context may end before its loop has run, with operations for devices submitted") {
  const whose which = GENERATE(whose::all, whose::first, whose::last);
  const emptied_gpus machine;
  lasting_operation it;
  asio::io_context io;
  const communicator world(io);
  const coordinator coord(world, nccl::backend());
  it.start(coord);
  if (!ends_early(which, world)) it.check_end(io);
}

TEST_CASE("a context may end at any look of an opening on devices") {
  const whose which = GENERATE(whose::all, whose::first, whose::last);
  const bool hierarchical = GENERATE(false, true);
  for (const int looks : {1, 3, 7, 20, 60, 200, 1000}) {
    INFO("looks: " << looks);
    const emptied_gpus machine;
    lasting_operation it;
    asio::io_context io;
    const communicator world(io);
    const coordinator coord(world, nccl::backend(over_nodes_if(hierarchical, world)));
    it.start(coord);
    look_for(io, looks + world.rank());
    if (!ends_early(which, world)) it.check_end(io);
  }
}

DOUBLE_TEST_CASE("a context may end with operations on its device, and they end well elsewhere") {
  const whose which = GENERATE(whose::all, whose::first, whose::last);
  const bool hierarchical = GENERATE(false, true);
  const emptied_gpus machine;
  lasting_operation it;
  std::thread later;
  {
    asio::io_context io;
    const communicator world(io);
    const coordinator coord(world, nccl::backend(over_nodes_if(hierarchical, world)));
    run(io, sums(coord, "before"));
    fake_gpu::hold(it.on.get());
    it.start(coord);
    CHECK(run_until(io, [&] { return is_started(coord, "it"); }));
    bool met = false;
    asio::co_spawn(io, meet(world), [&](std::exception_ptr) { met = true; });
    CHECK(run_until(io, [&] { return met; }));
    later = std::thread([on = it.on] {
      std::this_thread::sleep_for(200ms);
      fake_gpu::release(on.get());
    });
    if (!ends_early(which, world)) {
      it.check_end(io);
      CHECK(it.end.well());
    }
  }
  later.join();
}

TEST_CASE("a context may end while a process set is being opened, with operations on devices") {
  const whose which = GENERATE(whose::all, whose::first, whose::last);
  for (const int looks : {0, 2, 5, 20, 60, 200}) {
    INFO("looks: " << looks);
    const emptied_gpus machine;
    lasting_operation it;
    bool made = false;
    asio::io_context io;
    const communicator world(io);
    const coordinator coord(world, nccl::backend());
    run(io, sums(coord, "before"));
    it.start(coord);
    coord.add_process_set(cohort::ranks::all(world.size()),
                          [&](std::exception_ptr, cohort::process_set) { made = true; });
    look_for(io, looks + world.rank());
    if (!ends_early(which, world)) {
      it.check_end(io);
      CHECK(run_until(io, [&] { return made; }));
    }
  }
}

TEST_CASE("a context may end while a communicator of NCCL is being made") {
  const whose which = GENERATE(whose::all, whose::first, whose::last);
  for (const int looks : {0, 1, 3, 7, 20, 60, 200}) {
    INFO("looks: " << looks);
    const emptied_gpus machine;
    const clocked bound;
    const cohort::log::capture log;
    asio::io_context io;
    const communicator world(io);
    std::exception_ptr why;
    bool over = false;
    nccl::communicator kept;
    nccl::make_communicator(world, {}, [&](std::exception_ptr failed, nccl::communicator made) {
      why = failed;
      over = true;
      kept = made;
    });
    look_for(io, looks + world.rank());
    if (!ends_early(which, world)) {
      CHECK(run_until(io, [&] { return over; }));
      CHECK((why != nullptr) != static_cast<bool>(kept));
    }
    kept = {};
  }
}
