// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file What a timeline says of a device: when it packed, reduced and unpacked, on the host's
/// clock.

#include "coordinator/json.hpp"
#include "support.hpp"

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/timeline.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

using namespace cohort_test;

namespace {

/// The file of this rank, which goes away.
class timeline_file {
 public:
  timeline_file()
      : path_((std::filesystem::temp_directory_path() /
               ("cohort-device-times-" + std::to_string(::getpid()) + ".json"))
                  .string()) {}
  ~timeline_file() {
    for (int size : {1, 2}) std::remove(path_of(world_rank(), size).c_str());
  }
  timeline_file(const timeline_file&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] json read(const cohort::coordinator& coord) const {
    std::ifstream file(path_of(coord.rank(), coord.size()));
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    return parse_json(text);
  }

 private:
  [[nodiscard]] std::string path_of(int rank, int size) const {
    return cohort::coordination::timeline_path(path_, rank, size);
  }
  std::string path_;
};

/// A slice of the file; times in microseconds.
struct slice {
  std::string name;
  std::string row;
  std::string step;  ///< "device pack", …, or a phase of the host
  double begin = 0;
  double end = 0;
  int log_count = 0;
  int tensors = 0;
  double bytes = 0;
  int set = 0;
  std::string backend;
};

std::vector<slice> slices_of(const json& whole, std::string_view step) {
  std::map<std::string, std::string> rows;
  std::vector<slice> found;
  for (const json& each : whole["traceEvents"].items) {
    if (each["name"].text == "thread_name") rows[each["tid"].text] = each["args"]["name"].text;
    if (each["ph"].text != "X" || each["cat"].text != step) continue;
    slice one;
    one.name = each["name"].text;
    one.row = rows[each["tid"].text];
    one.step = each["cat"].text;
    one.begin = each["ts"].number();
    one.end = one.begin + each["dur"].number();
    one.log_count = static_cast<int>(each["args"]["log_count"].number());
    one.set = static_cast<int>(each["args"]["set"].number());
    if (const json* count = each["args"].find("tensors")) {
      one.tensors = static_cast<int>(count->number());
    }
    if (const json* bytes = each["args"].find("bytes")) one.bytes = bytes->number();
    if (const json* backend = each["args"].find("backend")) one.backend = backend->text;
    found.push_back(std::move(one));
  }
  std::sort(found.begin(), found.end(),
            [](const slice& a, const slice& b) { return a.log_count < b.log_count; });
  return found;
}

/// Four small tensors, which are packed.
struct gradients {
  std::vector<device::vector<float>> values;

  asio::awaitable<void> make(device::stream on, std::size_t size = 16) {
    for (int i = 0; i < 4; ++i) values.push_back(co_await filled(on, size, 1.0F));
  }
  [[nodiscard]] device::stream on() const { return values.front().producer(); }
  cohort::bundle bundle(const std::string& name) {
    cohort::bundle made(name);
    for (std::size_t i = 0; i < values.size(); ++i) made.add(std::to_string(i), values[i]);
    return made;
  }
};

/// Runs `body(world, coord, small)`, and shuts the coordinator down.
template <class Body>
void with_gradients(Body body) {
  on_gpus([&](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator coord(world, nccl::backend());
    gradients small;
    co_await small.make(device::stream());
    co_await body(world, coord, small);
    co_await coord.shutdown();
  });
}

/// Begins when the first base event has been reached, so that the first operation is timed in any
/// case. The device is idle.
void record(const cohort::coordinator& coord, const timeline_file& file) {
  CHECK_FALSE(coord.start_timeline(file.path()));
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

/// How far off the times of a device may be in a recording: its clock was read in between.
class clock_reading {
 public:
  clock_reading() : began_(std::chrono::steady_clock::now()) {}
  /// An operation that is timed has begun, so the clock has been read.
  void end() { ended_ = std::chrono::steady_clock::now(); }
  /// In microseconds, and one for what CUDA rounds.
  [[nodiscard]] double error() const {
    return std::chrono::duration<double, std::micro>(ended_ - began_).count() / 2 + 1;
  }

 private:
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point ended_{};
};

/// How often CUDA was asked for a time.
inline std::uint64_t timed() { return fake_gpu::calls("cudaEventElapsedTime"); }

/// Calls about events, of whatever kind.
inline std::uint64_t asked_of_device() {
  return timed() + fake_gpu::calls(fake_gpu::make_timing_event) +
         fake_gpu::calls("cudaEventQuery") + fake_gpu::calls("cudaEventRecord");
}

}  // namespace

TEST_CASE("a timeline has what the device did, in rows of its own, on the host's clock") {
  const timeline_file file;
  with_gradients([&](cohort::communicator, cohort::coordinator coord,
                     gradients& small) -> asio::awaitable<void> {
    auto large = co_await filled(small.on(), 1200000, 1.0F);
    co_await sums(coord, "before");
    record(coord, file);
    co_await coord.grouped_all_reduce(small.bundle("gradients"), op::sum);
    co_await coord.all_reduce("large", large, op::max);
    int on_host = 1;
    co_await coord.all_reduce("on the host", on_host, op::max);
    coord.stop_timeline();
    const json whole = file.read(coord);
    const std::string uuid = device::uuid(0).text();
    CHECK(whole["otherData"]["device"].text == "device 0 " + uuid);

    const auto packs = slices_of(whole, "device pack");
    const auto reductions = slices_of(whole, "device reduce");
    const auto unpacks = slices_of(whole, "device unpack");
    const auto host = slices_of(whole, "data");
    REQUIRE(packs.size() == 1);
    REQUIRE(reductions.size() == 2);
    REQUIRE(unpacks.size() == 1);
    REQUIRE(host.size() == 3);
    CHECK(host[0].backend == "nccl");
    CHECK(host[2].backend == "mpi");
    CHECK(packs[0].row == "device pack, device 0 " + uuid);
    CHECK(reductions[0].row == "device reduce, device 0 " + uuid);
    CHECK(unpacks[0].row == "device unpack, device 0 " + uuid);
    for (const auto* const each : {&packs[0], &reductions[0], &unpacks[0]}) {
      INFO(each->step);
      CHECK(each->name == "all_reduce");
      CHECK(each->log_count == host[0].log_count);
      CHECK(each->tensors == 4);
      CHECK(each->bytes == 4 * 64);
    }
    CHECK(reductions[1].tensors == 1);
    CHECK(reductions[1].bytes == 4800000);
    CHECK(reductions[1].log_count == host[1].log_count);
    // In the time of the device they follow one another to its resolution.
    CHECK(packs[0].end <= reductions[0].begin + 1);
    CHECK(reductions[0].end <= unpacks[0].begin + 1);
  });
}

DOUBLE_TEST_CASE("what the device did lies where the host saw it, and is as long as it was") {
  const timeline_file file;
  on_gpus([&](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    cohort::coordinator coord(world, nccl::backend());
    const device::stream on;
    auto values = co_await filled(on, 1000, 1.0F);
    co_await coord.all_reduce("before", values, op::max);
    const device::stream domain = domain_here(world);
    const auto all = fake_nccl::communicators_of(world.size());
    REQUIRE(all.size() == 1);
    clock_reading reading;
    record(coord, file);
    co_await meet(world);
    // One rank's device is late by 60 ms, so those of the others wait in their reduction.
    const bool late = world.rank() == 1;
    if (late) fake_gpu::hold(domain.get());
    const std::uint64_t made = fake_gpu::calls(fake_gpu::make_timing_event);
    auto held = coord.all_reduce("held", values, op::max, cohort::as_future);
    CHECK(co_await soon([&] {
      return late ? fake_gpu::calls(fake_gpu::make_timing_event) > made
                  : fake_gpu::occupied(0);  // the event before it has been reached
    }));
    reading.end();
    co_await meet(world);
    co_await pause(60ms);
    if (late) fake_gpu::release(domain.get());
    co_await std::move(held);
    coord.stop_timeline();
    const json whole = file.read(coord);
    const auto reductions = slices_of(whole, "device reduce");
    const auto host = slices_of(whole, "data");
    REQUIRE(reductions.size() == 1);
    REQUIRE(host.size() == 1);
    const double off = reading.error();
    if (world.rank() == 0) CHECK(reductions[0].end - reductions[0].begin > 59000);
    if (late) CHECK(reductions[0].begin > host[0].begin + 60000 - off);
    CHECK(reductions[0].begin > host[0].begin - off);
    CHECK(reductions[0].end < host[0].end + off);
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a timeline shows that a pack is filled while the one before is being reduced") {
  const timeline_file file;
  on_gpus([&](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    cohort::coordinator coord(world, nccl::backend());
    const device::stream on;
    gradients first;
    gradients second;
    co_await first.make(on);
    co_await second.make(on);
    auto warm = co_await filled(on, 1, 1.0F);
    co_await coord.all_reduce("warm", warm, op::sum);
    const device::stream domain = domain_here(world);
    const std::uint64_t made = fake_gpu::calls(fake_gpu::make_timing_event);
    const auto reached = [] { return fake_gpu::calls("timing events that are reached"); };
    const std::uint64_t before = reached();
    clock_reading reading;
    record(coord, file);
    co_await meet(world);
    if (world.rank() == 1) fake_gpu::hold(domain.get());
    std::deque<ending> ends;
    coord.grouped_all_reduce(first.bundle("first"), op::sum, ends.emplace_back().handler());
    coord.grouped_all_reduce(second.bundle("second"), op::sum, ends.emplace_back().handler());
    // Six events of each operation, and the one that both are mapped by; or they have one each. The
    // packs are over when their four are reached; the first reduction has begun where nothing holds
    // it.
    const auto bases = [&] {
      return static_cast<int>(fake_gpu::calls(fake_gpu::make_timing_event) - made) - 12;
    };
    const int of_steps = world.rank() == 1 ? 4 : 5;
    const auto packed = [&] {
      return bases() > 0 && static_cast<int>(reached() - before) == of_steps + bases();
    };
    CHECK(co_await soon(packed));
    reading.end();
    const bool one_clock = bases() == 1;
    co_await meet(world);
    co_await pause(100ms);
    if (world.rank() == 1) fake_gpu::release(domain.get());
    CHECK(co_await soon([&] { return all_over(ends); }));
    coord.stop_timeline();
    const json whole = file.read(coord);
    const auto packs = slices_of(whole, "device pack");
    const auto reductions = slices_of(whole, "device reduce");
    REQUIRE(packs.size() == 2);
    REQUIRE(reductions.size() == 2);
    CHECK(packs[1].log_count == reductions[1].log_count);
    const double off = one_clock ? 0 : 2 * reading.error();
    CHECK(packs[1].end < reductions[0].end + off);
    // Where the reduction has begun by then, it goes on around the pack.
    if (world.rank() == 0) CHECK(reductions[0].end > packs[1].end + 50000 - off);
    CHECK(reductions[0].end <= reductions[1].begin + 1 + off);  // one after the other
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("without a timeline nothing is timed on a device, and after one nothing is left") {
  const timeline_file file;
  with_gradients([&](cohort::communicator world, cohort::coordinator coord,
                     gradients& small) -> asio::awaitable<void> {
    for (int i = 0; i < 5; ++i) {
      co_await coord.grouped_all_reduce(small.bundle("silent"), op::max);
    }
    CHECK(fake_gpu::calls(fake_gpu::make_timing_event) == 0);
    CHECK(timed() == 0);
    record(coord, file);
    for (int i = 0; i < 20; ++i) {
      co_await coord.grouped_all_reduce(small.bundle("seen"), op::max);
    }
    // Ticks read them, and those come while something is awaited. Three steps are read by two
    // questions each.
    std::array<int, 1> message{};
    auto awaited = cohort::recv(world, message, world.rank(), 5, cohort::as_future);
    CHECK(co_await soon([] { return timed() >= 20 * 3 * 2; }));
    co_await cohort::send(world, std::array{1}, world.rank(), 5);
    co_await std::move(awaited);
    const auto pooled = fake_gpu::calls(fake_gpu::make_timing_event);
    for (int i = 0; i < 5; ++i) {
      co_await coord.grouped_all_reduce(small.bundle("again"), op::max);
    }
    // Some base events may be new, but not two for each of three steps.
    CHECK(fake_gpu::calls(fake_gpu::make_timing_event) < pooled + 20);
    coord.stop_timeline();
    CHECK(timed() > 0);
    const auto after = timed();
    const auto made = fake_gpu::calls(fake_gpu::make_timing_event);
    for (int i = 0; i < 5; ++i) {
      co_await coord.grouped_all_reduce(small.bundle("silent"), op::max);
    }
    co_await pause(120ms);
    CHECK(fake_gpu::calls(fake_gpu::make_timing_event) == made);
    CHECK(timed() == after);
    CHECK(fake_gpu::live_timing_events(0) == 0);
    const json whole = file.read(coord);
    CHECK(slices_of(whole, "device pack").size() == 25);
    CHECK(slices_of(whole, "device unpack").size() == 25);
    // And once more, into the same file.
    record(coord, file);
    co_await coord.grouped_all_reduce(small.bundle("second"), op::max);
    coord.stop_timeline();
    const json second = file.read(coord);
    CHECK(slices_of(second, "device reduce").size() == 1);
  });
}

TEST_CASE("a timeline that runs to the end has all that the device did") {
  const timeline_file file;
  on_gpus([&](cohort::communicator world) -> asio::awaitable<void> {
    cohort::coordinator_options options;
    options.timeline = file.path();
    cohort::coordinator coord(world, nccl::backend(), options);
    const device::stream on;
    gradients small;
    co_await small.make(on);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);  // the base event has been reached
    for (int i = 0; i < 10; ++i) {
      co_await coord.grouped_all_reduce(small.bundle("all"), op::max);
    }
    co_await coord.shutdown();
    const json whole = file.read(coord);
    CHECK(slices_of(whole, "device pack").size() == 10);
    CHECK(slices_of(whole, "device reduce").size() == 10);
    CHECK(slices_of(whole, "device unpack").size() == 10);
  });
}

TEST_CASE("messages, sets, replays and reductions over nodes are seen on the device") {
  const timeline_file file;
  with_gradients([&](cohort::communicator world, cohort::coordinator coord,
                     gradients& small) -> asio::awaitable<void> {
    auto group = co_await coord.make_persistent(small.bundle("group"), op::max);
    auto pair = co_await coord.add_process_set(cohort::ranks::stride(0, 1, 1));
    record(coord, file);
    auto captured = co_await group.capture();
    for (int i = 0; i < 3; ++i) co_await group.replay(captured);
    if (world.rank() == 0) co_await pair.all_reduce("alone", small.values[0], op::max);
    if (world.size() > 1) {
      if (world.rank() == 0) co_await coord.send("message", small.values[1], 1);
      if (world.rank() == 1) co_await coord.recv("message", small.values[1], 0);
    }
    coord.stop_timeline();
    const json whole = file.read(coord);
    const auto reductions = slices_of(whole, "device reduce");
    const auto count = [&](auto of) {
      return std::count_if(reductions.begin(), reductions.end(), of);
    };
    const bool moves = world.size() > 1 && world.rank() < 2;
    // A replay is one step; a capture does nothing.
    CHECK(count([](const slice& one) { return one.tensors == 4; }) == 3);
    CHECK(count([](const slice& one) { return one.name == "send" || one.name == "recv"; }) ==
          (moves ? 1 : 0));
    CHECK(count([](const slice& one) { return one.set != 0; }) == (world.rank() == 0 ? 1 : 0));
    CHECK(slices_of(whole, "device pack").empty());
    captured = {};
    co_await group.remove();
    if (world.rank() == 0) co_await pair.remove();
  });
  on_gpus([&](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    cohort::coordinator coord(world, nccl::backend(over_nodes(world, 2)));
    const device::stream on;
    gradients small;
    co_await small.make(on);
    record(coord, file);
    co_await coord.grouped_all_reduce(small.bundle("nodes"), op::max);
    coord.stop_timeline();
    const json whole = file.read(coord);
    // With several nodes the reduction in the node and the way back are two.
    CHECK(slices_of(whole, "device reduce").size() == (world.size() > 2 ? 2 : 1));
    CHECK(slices_of(whole, "device pack").size() == 1);
    CHECK(slices_of(whole, "device unpack").size() == 1);
    co_await coord.shutdown();
  });
}

DOUBLE_TEST_CASE("a timeline stays whole when a device fails, and asks nothing of it afterwards") {
  const timeline_file file;
  for (const bool sticky : {false, true}) {
    on_gpus(
        [&, sticky](cohort::communicator world) -> asio::awaitable<void> {
          if (world.size() < 2) co_return;  // nothing hangs there
          const cohort::log::capture log;
          cohort::coordinator coord(world, nccl::backend());
          const device::stream on;
          gradients small;
          co_await small.make(on);
          std::vector<gradients> lost(4);
          for (gradients& each : lost) co_await each.make(on);
          co_await sums(coord, "before");
          record(coord, file);
          co_await coord.grouped_all_reduce(small.bundle("good"), op::max);
          const ncclComm_t comm = native(world);
          co_await hangs_next(world, comm);
          std::deque<ending> ends;
          for (std::size_t i = 0; i < lost.size(); ++i) {
            coord.grouped_all_reduce(lost[i].bundle("bad " + std::to_string(i)), op::max,
                                     ends.emplace_back().handler());
          }
          co_await fails_on_rank_0(world, comm, sticky);
          CHECK(co_await soon([&] { return all_over(ends); }));
          for (const ending& one : ends) CHECK(one.is_data_error());
          const std::uint64_t asked = asked_of_device();
          co_await pause(120ms);
          coord.stop_timeline();
          if (sticky && world.rank() == 0) {
            CHECK(asked_of_device() == asked);
          }
          const json whole = file.read(coord);
          const auto reductions = slices_of(whole, "device reduce");
          // The one that went well, unless the device was lost before it was asked for.
          CHECK(reductions.size() <= 1);
          for (const slice& one : reductions) CHECK(one.end >= one.begin);
          co_await coord.shutdown();
        },
        sticky);
  }
}

DOUBLE_TEST_CASE("operations go on where events with timing cannot be had or read") {
  const timeline_file file;
  with_gradients([&](cohort::communicator, cohort::coordinator coord,
                     gradients& small) -> asio::awaitable<void> {
    co_await coord.grouped_all_reduce(small.bundle("before"), op::max);
    co_await coord.grouped_all_reduce(small.bundle("before"), op::max);
    record(coord, file);
    fake_gpu::fail_next(fake_gpu::make_timing_event, cudaErrorMemoryAllocation, 1000);
    co_await coord.grouped_all_reduce(small.bundle("not timed"), op::max);
    fake_gpu::fail_next(fake_gpu::make_timing_event, cudaSuccess, 0);
    fake_gpu::fail_next("cudaEventElapsedTime", cudaErrorInvalidValue, 1000);
    co_await coord.grouped_all_reduce(small.bundle("not read"), op::max);
    coord.stop_timeline();
    fake_gpu::fail_next("cudaEventElapsedTime", cudaSuccess, 0);
    const json whole = file.read(coord);
    CHECK(slices_of(whole, "device reduce").empty());
    CHECK(slices_of(whole, "data").size() == 2);
  });
}

DOUBLE_TEST_CASE("an enqueued operation is in the timeline once the device has done it") {
  const timeline_file file;
  with_gradients([&](cohort::communicator world, cohort::coordinator coord,
                     gradients& small) -> asio::awaitable<void> {
    co_await sums(coord, "before");
    const device::stream late;
    record(coord, file);
    fake_gpu::hold(late.get());
    small.on().wait(late.record());
    cohort::call_options how;
    how.ends = cohort::until::enqueued;
    co_await coord.grouped_all_reduce(small.bundle("enqueued"), op::max, how);
    co_await pause(60ms);
    CHECK(slices_of(file.read(coord), "device reduce").empty());
    co_await meet(world);
    fake_gpu::release(late.get());
    auto over = device::done(small.on());
    co_await std::move(over);
    // A tick of the engine's finds it, and those come while something is awaited.
    const auto seen = [&] { return slices_of(file.read(coord), "device unpack").size() == 1; };
    std::vector<int> missing(1);
    for (int round = 0; round < 500; ++round) {
      missing[0] = seen() ? 0 : 1;
      co_await coord.all_reduce("missing", missing, op::sum);
      if (missing[0] == 0) break;
      co_await pause(10ms);
    }
    CHECK(missing[0] == 0);
    coord.stop_timeline();
  });
}
